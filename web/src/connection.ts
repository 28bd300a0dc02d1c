import { base } from "./base";
import { parseExact } from "./exact";
import type { Edge, Form, PlayState, Problem, Shown, Summary, Topic, Window } from "./types";

type Told = {
  hello: Summary;
  state: PlayState;
  /** A `partial` answer is followed by the complete one. */
  frames: { t: number; edges: Edge[]; partial?: boolean };
  loaded: [number, number][];
  problems: Problem[];
  topics: Topic[];
  window: Window;
  error: string;
  connected: boolean;
  /** Why the server does not show this recording. */
  refused: string;
};

type Listener = (shown: Shown) => void;

/** The options of a subscription. */
export interface Wish {
  /** The field that colours points, or the layer of a map; their own by default. */
  color?: string;
  /** The most points; unlimited by default. */
  most?: number;
  /** The most messages per second; unlimited by default. */
  rate?: number;
}

interface Subscription {
  topic: string;
  form: Form;
  wish: Wish;
  listeners: Set<Listener>;
  last?: Shown;
}

/** The page's WebSocket. It reconnects by itself, and renews its subscriptions. */
export class Connection {
  summary?: Summary;
  state: PlayState = { state: "paused", t: 0, speed: 1, loop: false, together: false, dropped: {} };
  /** When `state` was received, to interpolate the time. */
  private stateAt = 0;
  private socket?: WebSocket;
  private listeners = new Map<string, Set<(value: never) => void>>();
  private subscriptions = new Map<string, Subscription>();
  private framesWanted = 0;
  private lastFrames?: Told["frames"];
  private pendingSeek?: number;
  private isSeeking = false;
  /** A seek that the server has not confirmed yet: states until then are older. */
  private awaited?: { t: number; until: number };
  private wait = 250;
  private unsent: object[] = [];

  connect(): void {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${base}ws`, "asof.v1");
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      this.wait = 250;
      this.tell("connected", true);
      for (const { topic, form, wish } of this.subscriptions.values()) this.send({ op: "subscribe", topic, form, ...wish });
      if (this.framesWanted > 0) this.send({ op: "frames", on: true });
      // A robot that was followed is followed again.
      if (this.summary?.live && !this.state.following) this.send({ op: "pause" });
      if (this.state.t > 0 && !this.state.following) this.send({ op: "seek", t: Math.round(this.state.t) });
      if (this.state.loop) this.send({ op: "loop", on: true });
    };
    socket.onmessage = (event) => this.receive(event.data as string | ArrayBuffer);
    socket.onclose = () => {
      this.tell("connected", false);
      void this.askWhy();
      setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(this.wait * 2, 5000);
    };
  }

  /** A WebSocket that fails does not say why: a request does. */
  private async askWhy(): Promise<void> {
    const response = await fetch(`${base}api/summary`).catch(() => undefined);
    if (!response || response.status !== 400) return;
    const { error } = (await response.json()) as { error?: string };
    if (error) this.tell("refused", error);
  }

  on<K extends keyof Told>(what: K, listener: (value: Told[K]) => void): () => void {
    const all = this.listeners.get(what) ?? new Set();
    this.listeners.set(what, all);
    all.add(listener as (value: never) => void);
    return () => all.delete(listener as (value: never) => void);
  }

  /** The current time, interpolated between two states of the server. */
  position(): number {
    const { state, t, speed } = this.state;
    if (this.pendingSeek !== undefined) return this.pendingSeek;
    if (state !== "playing" || speed === null || this.state.following) return t;
    const ahead = Math.min(performance.now() - this.stateAt, 100) * 1e6 * speed;
    return Math.min(t + ahead, this.summary?.duration ?? t);
  }

  /** Shows an error that the page itself has found. */
  report(text: string): void {
    this.tell("error", text);
  }

  /** Commands of one task are sent together: the server then reads for all of them at once. */
  send(command: object): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    if (this.unsent.push(command) > 1) return;
    const socket = this.socket;
    queueMicrotask(() => {
      const unsent = this.unsent.splice(0);
      // The server's limit for a message is 64 kB.
      for (let first = 0; first < unsent.length; first += 100) {
        const some = unsent.slice(first, first + 100);
        if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(some.length > 1 ? some : some[0]));
      }
    });
  }

  /** The first seek of an animation frame is sent at once; of later ones in that frame only the last. */
  seek(t: number): void {
    const first = this.summary?.window?.from ?? 0;
    const at = Math.max(first, Math.min(Math.round(t), this.summary?.duration ?? 0));
    if (this.isSeeking) {
      this.pendingSeek = at;
      return;
    }
    this.isSeeking = true;
    this.sendSeek(at);
    requestAnimationFrame(() => {
      this.isSeeking = false;
      const pending = this.pendingSeek;
      this.pendingSeek = undefined;
      if (pending !== undefined) this.seek(pending);
    });
  }

  /** The server's time; while paused, an unconfirmed seek takes precedence. */
  private current(state: PlayState): PlayState {
    const { awaited } = this;
    const isOld = awaited && state.state === "paused" && state.t !== awaited.t && performance.now() < awaited.until;
    if (isOld) return { ...state, t: awaited.t };
    this.awaited = undefined;
    return state;
  }

  private sendSeek(t: number): void {
    this.send({ op: "seek", t });
    this.awaited = { t, until: performance.now() + 500 };
    this.state = { ...this.state, t, following: false, gone: false };
    this.stateAt = performance.now();
    this.tell("state", this.state);
  }

  /** Goes to the end; follows a running robot. */
  toEnd(): void {
    if (this.summary?.live) this.send({ op: "follow" });
    else this.seek(this.summary?.duration ?? 0);
  }

  toggle(): void {
    this.send({ op: this.state.state === "playing" || this.state.state === "buffering" ? "pause" : "play" });
  }

  subscribe(topic: string, form: Form, listener: Listener): () => void {
    const key = `${form} ${topic}`;
    let known = this.subscriptions.get(key);
    if (!known) {
      known = { topic, form, wish: {}, listeners: new Set() };
      this.subscriptions.set(key, known);
      this.send({ op: "subscribe", topic, form });
    } else if (known.last) {
      const last = known.last;
      queueMicrotask(() => listener(last));
    }
    known.listeners.add(listener);
    const own = known;
    return () => {
      own.listeners.delete(listener);
      if (own.listeners.size === 0 && this.subscriptions.get(key) === own) {
        this.subscriptions.delete(key);
        this.send({ op: "unsubscribe", topic, form });
      }
    };
  }

  /** Changes the options of a subscription. */
  wish(topic: string, form: Form, { color, most, rate }: Wish): void {
    const known = this.subscriptions.get(`${form} ${topic}`);
    if (!known || (known.wish.color === color && known.wish.most === most && known.wish.rate === rate)) return;
    known.wish = { color, most, rate };
    this.send({ op: "subscribe", topic, form, color, most, rate });
  }

  frames(listener: (frames: Told["frames"]) => void): () => void {
    if (this.framesWanted++ === 0) this.send({ op: "frames", on: true });
    else if (this.lastFrames) listener(this.lastFrames);
    const stop = this.on("frames", listener);
    return () => {
      stop();
      if (--this.framesWanted === 0) this.send({ op: "frames", on: false });
    };
  }

  /** Resolves when the first frames have arrived. Requests that scan the whole recording wait for it. */
  async first(): Promise<void> {
    const isThere = () => this.lastFrames && !this.lastFrames.partial;
    if (isThere() || this.summary?.live || this.summary?.frame_topics.length === 0) return;
    // The 3D view subscribes as soon as it is loaded.
    if (this.framesWanted === 0) await new Promise((resolve) => setTimeout(resolve, 700));
    if (isThere() || this.framesWanted === 0) return;
    await new Promise<void>((resolve) => {
      const stop = this.on("frames", ({ partial }) => {
        if (partial) return;
        stop();
        resolve();
      });
      setTimeout(resolve, 5000);
    });
  }

  private receive(data: string | ArrayBuffer): void {
    const message = typeof data === "string" ? (data.includes('"form":"json"') ? parseExact<ReturnType<typeof JSON.parse>>(data) : JSON.parse(data)) : headOf(data);
    switch (message.op) {
      case "hello":
        this.summary = message.summary;
        return this.tell("hello", message.summary);
      case "state":
        this.state = this.current(message);
        this.stateAt = performance.now();
        return this.tell("state", this.state);
      case "frames":
        this.lastFrames = message;
        return this.tell("frames", message);
      case "loaded":
        return this.tell("loaded", message.ranges);
      case "window":
        if (this.summary) {
          this.summary.window = message;
          this.summary.duration = message.to;
          this.summary.is_empty = message.messages === 0;
        }
        return this.tell("window", message);
      case "topics":
        if (this.summary) {
          this.summary.topics = message.topics;
          this.summary.frame_topics = message.frame_topics;
        }
        return this.tell("topics", message.topics);
      case "problems":
        return this.tell("problems", message.problems);
      case "restarted":
        // What was shown belongs to another time.
        for (const known of this.subscriptions.values()) known.last = undefined;
        this.lastFrames = undefined;
        return this.tell("error", "The robot's clock was set back. Earlier messages are gone.");
      case "over":
      case "error":
        return this.tell("error", message.message);
      case "message":
      case "nothing": {
        const known = this.subscriptions.get(`${message.form} ${message.topic}`);
        if (!known) return;
        known.last = message;
        for (const listener of known.listeners) listener(message);
      }
    }
  }

  private tell<K extends keyof Told>(what: K, value: Told[K]): void {
    for (const listener of this.listeners.get(what) ?? []) (listener as (value: Told[K]) => void)(value);
  }
}

function headOf(data: ArrayBuffer): Shown {
  const length = new DataView(data).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))) as Shown;
  head.body = data;
  head.bodyOffset = 4 + length;
  return head;
}

/** A request in JSON; `parse` may keep integers of any size. */
export async function ask<T>(path: string, parameters: Record<string, string | number>, signal?: AbortSignal, parse: (text: string) => unknown = JSON.parse): Promise<T> {
  const query = new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]));
  const response = await fetch(`${base}api/${path}?${query}`, { signal });
  const answer = parse(await response.text());
  if (answer && typeof answer === "object" && "error" in answer) throw new Error(String(answer.error));
  return answer as T;
}

/**
 * Columns of a growing series, of a fixed width in nanoseconds, counted from time zero. Complete columns never change,
 * so only the newest are requested again.
 */
export class Tail {
  private width = 0;
  private held = new Map<number, Float64Array>();
  private next = 0;
  private low = 0;
  private isAsking = false;
  error?: string;

  constructor(
    private path: string,
    private parameters: Record<string, string | number>,
    private lanes: number,
  ) {}

  at(column: number): Float64Array | undefined {
    return this.held.get(column);
  }

  /** Requests the missing columns between two times. Returns whether there were any. */
  async refresh(from: number, to: number, width: number, signal: AbortSignal): Promise<boolean> {
    if (this.isAsking) return false;
    const [first, last] = [Math.floor(from / width), Math.floor(to / width)];
    if (width !== this.width || first < this.low || first > this.next) {
      this.held.clear();
      this.width = width;
      this.next = this.low = first;
    }
    for (const column of this.held.keys()) if (column < first) this.held.delete(column);
    this.low = first;
    const begin = Math.max(this.next, last - 4000);
    this.isAsking = true;
    try {
      const count = last - begin + 1;
      if (count < 1) return false;
      const where = { start: begin * width, end: (last + 1) * width - 1, columns: count };
      const fresh = new Map<number, Float64Array>();
      const take = (at: number, lanes: Float64Array[]) => {
        for (let column = 0; column < lanes[0].length; column++)
          fresh.set(begin + at + column, Float64Array.from(lanes, (lane) => lane[column]));
      };
      this.error = await columns(this.path, { ...this.parameters, ...where }, this.lanes, take, signal);
      if (this.width !== width) return false;
      for (const [column, values] of fresh) this.held.set(column, values);
      this.next = last;
      return true;
    } catch {
      return false;
    } finally {
      this.isAsking = false;
    }
  }
}

/** Streams the columns of a recording to `take`. Returns the error, if there was one. */
export async function columns(
  path: string,
  parameters: Record<string, string | number>,
  lanes: number,
  take: (first: number, lanes: Float64Array[]) => void,
  signal: AbortSignal,
): Promise<string | undefined> {
  const query = new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]));
  const response = await fetch(`${base}api/${path}?${query}`, { signal });
  if (!response.ok || !response.body) return (await response.json()).error ?? response.statusText;
  const reader = response.body.getReader();
  let held = new Uint8Array(0);
  let error: string | undefined;
  for (;;) {
    const { done, value } = await reader.read();
    if (value) {
      const next = new Uint8Array(held.length + value.length);
      next.set(held);
      next.set(value, held.length);
      held = next;
    }
    let at = 0;
    while (held.length - at >= 8) {
      const view = new DataView(held.buffer, held.byteOffset + at);
      const first = view.getUint32(0, true);
      const count = view.getUint32(4, true);
      if (first === 0xffffffff) {
        if (held.length - at < 8 + count) break;
        error = new TextDecoder().decode(held.subarray(at + 8, at + 8 + count)) || undefined;
        at = held.length;
        break;
      }
      const size = 8 + count * lanes * 8;
      if (held.length - at < size) break;
      const values = new Float64Array(held.slice(at + 8, at + size).buffer);
      take(first, Array.from({ length: lanes }, (_, lane) => values.subarray(lane * count, (lane + 1) * count)));
      at += size;
    }
    held = held.slice(at);
    if (done) return error;
  }
}
