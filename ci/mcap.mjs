// As much of an MCAP writer as a test needs: messages in JSON, in the plainest file that there is.

/** The bytes of a file with these messages: `{ topic, type, schema, t, data }`, `t` in nanoseconds. */
export function mcap(messages) {
  const topics = [...new Set(messages.map((message) => message.topic))];
  const channels = topics.map((topic, index) => {
    const { type, schema } = messages.find((message) => message.topic === topic);
    return [
      record(3, u16(index + 1), text(type), text("jsonschema"), sized(Buffer.from(JSON.stringify(schema)))),
      record(4, u16(index + 1), u16(index + 1), text(topic), text("json"), u32(0)),
    ];
  });
  const said = messages.map(({ topic, t, data }) => {
    const channel = u16(topics.indexOf(topic) + 1);
    return record(5, channel, u32(0), u64(t), u64(t), Buffer.from(JSON.stringify(data)));
  });
  const magic = Buffer.from("\x89MCAP0\r\n", "latin1");
  return Buffer.concat([magic, record(1, text(""), text("")), ...channels.flat(), ...said, record(15, u32(0)), record(2, u64(0), u64(0), u32(0)), magic]);
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
