// The caching source of a browser player, measured: a line with a case comes in, a line with its figure goes out.
import { createInterface } from "node:readline";
import { fromNanoSec } from "@foxglove/rostime";
import { CachingIterableSource } from "caching-iterable-source";

const topic = (number) => `/sensor/${String(number).padStart(3, "0")}`;

// Message i is on topic i % topics, at i times the period; as the suite's own source.
class Ticks {
  constructor(topics, messages, period, payload) {
    Object.assign(this, { topics, messages, period: BigInt(period), payload });
    this.names = Array.from({ length: topics }, (_, number) => topic(number));
    this.message = { bytes: new Uint8Array(payload) };
  }
  time(index) {
    return fromNanoSec(BigInt(index) * this.period);
  }
  async initialize() {
    return { start: this.time(0), end: this.time(this.messages - 1) };
  }
  index(time, up) {
    const nanos = BigInt(time.sec) * 1_000_000_000n + BigInt(time.nsec) + (up ? this.period - 1n : 0n);
    return Number(nanos / this.period);
  }
  async *messageIterator({ topics, start, end }) {
    const wanted = new Set(topics);
    const last = Math.min(this.index(end, false), this.messages - 1);
    for (let index = this.index(start, true); index <= last; index++) {
      const name = this.names[index % this.topics];
      if (!wanted.has(name)) continue;
      const receiveTime = this.time(index);
      const msgEvent = { topic: name, receiveTime, message: this.message, sizeInBytes: this.payload, schemaName: "" };
      yield { type: "message-event", msgEvent };
    }
  }
  async getBackfillMessages() {
    return [];
  }
}

async function drain(source, query) {
  let sum = 0;
  for await (const result of source.messageIterator(query)) sum += result.msgEvent.sizeInBytes;
  return sum;
}

async function cpuNanos(work) {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) * 1000;
}

function dice(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

async function cached(ticks, options) {
  const cache = new CachingIterableSource(ticks, options);
  const { start, end } = await cache.initialize();
  return { cache, query: { topics: ticks.names, start, end } };
}

async function warmed(ticks) {
  const made = await cached(ticks);
  await drain(made.cache, made.query);
  return made;
}

const MESSAGES = 200_000;
const kept = {};
const cases = {
  async cold_insert_over_source() {
    const ticks = new Ticks(100, MESSAGES, 1_000_000, 100);
    const { cache, query } = await cached(ticks);
    const bare = await cpuNanos(() => drain(ticks, query));
    return ((await cpuNanos(() => drain(cache, query))) - bare) / MESSAGES;
  },
  async warm_read_100_topics() {
    kept.warm ??= await warmed(new Ticks(100, MESSAGES, 1_000_000, 100));
    return (await cpuNanos(() => drain(kept.warm.cache, kept.warm.query))) / MESSAGES;
  },
  async backfill_100_topics_100000_messages() {
    kept.backfill ??= await warmed(new Ticks(100, 100_000, 1_000_000, 100));
    const { cache, query } = kept.backfill;
    const roll = dice(11);
    const calls = 100;
    const ask = async () => {
      for (let call = 0; call < calls; call++) {
        const time = fromNanoSec(BigInt(roll(100_000)) * 1_000_000n);
        await cache.getBackfillMessages({ topics: query.topics, time });
      }
    };
    return (await cpuNanos(ask)) / calls;
  },
  async step_back_60_frames() {
    kept.video ??= await warmed(new Ticks(10, 12_000, 3_333_333, 20_000));
    const { cache } = kept.video;
    const roll = dice(13);
    const calls = 5;
    const step = async () => {
      for (let call = 0; call < calls; call++) {
        let time = fromNanoSec(BigInt(6_000 + roll(6_000)) * 3_333_333n);
        for (let frame = 0; frame < 60; frame++) {
          const [found] = await cache.getBackfillMessages({ topics: [topic(3)], time });
          const nanos = BigInt(found.receiveTime.sec) * 1_000_000_000n + BigInt(found.receiveTime.nsec);
          time = fromNanoSec(nanos - 1n);
        }
      }
    };
    return (await cpuNanos(step)) / calls;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  console.log(await cases[line.trim()]());
}
