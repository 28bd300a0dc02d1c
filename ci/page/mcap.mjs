// A minimal MCAP writer for tests: messages in JSON or as bytes, without chunks, index or summary.

/**
 * The bytes of a file with these messages: `{ topic, type, schema, t, data }`, `t` in nanoseconds. A message that has a
 * `payload` instead is in CDR, and its schema a text of ROS 2. With `write`, each part is handed to it as it is made: a file
 * can be larger than what is held.
 */
export function mcap(messages, write) {
  const topics = [...new Set(messages.map((message) => message.topic))];
  const channels = topics.map((topic, index) => {
    const { type, schema, payload } = messages.find((message) => message.topic === topic);
    const described = payload ? [text("ros2msg"), text(schema)] : [text("jsonschema"), text(JSON.stringify(schema))];
    return [
      record(3, u16(index + 1), text(type), ...described),
      record(4, u16(index + 1), u16(index + 1), text(topic), text(payload ? "cdr" : "json"), u32(0)),
    ];
  });
  const said = ({ topic, t, data, payload }) => {
    const channel = u16(topics.indexOf(topic) + 1);
    return record(5, channel, u32(0), u64(t), u64(t), payload ?? Buffer.from(JSON.stringify(data)));
  };
  const magic = Buffer.from("\x89MCAP0\r\n", "latin1");
  const parts = [];
  const put = write ?? ((part) => parts.push(part));
  [magic, record(1, text(""), text("")), ...channels.flat()].forEach((part) => put(part));
  for (const message of messages) put(said(message));
  [record(15, u32(0)), record(2, u64(0), u64(0), u32(0)), magic].forEach((part) => put(part));
  return Buffer.concat(parts);
}

const record = (opcode, ...parts) => {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([opcode]), u64(body.length), body]);
};
const sized = (bytes) => Buffer.concat([u32(bytes.length), bytes]);
const text = (value) => sized(Buffer.from(value));
const u16 = (value) => Buffer.from(Uint16Array.of(value).buffer);
const u32 = (value) => Buffer.from(Uint32Array.of(value).buffer);
const u64 = (value) => Buffer.from(BigUint64Array.of(BigInt(value)).buffer);
