/** What the server says, as crates/asof-serve/API.md describes it. Times are nanoseconds since the recording's start. */

export type Form = "json" | "image" | "points" | "grid" | "columns";

export interface Topic {
  topic: string;
  type: string;
  encoding: string;
  schema_encoding: string;
  messages: number | null;
  hz: number | null;
  role: string | null;
  /** Fields that are worth a plot at first sight, by its schema. */
  plot?: string[];
  /** Of a running robot: messages that have left the window. */
  left?: number;
}

/** What is held of a source that grows, such as a running robot. */
export interface Window {
  from: number;
  to: number;
  /** How far back is kept; null for a file that is being written, which keeps everything. */
  age: number | null;
  bytes: number;
  messages: number;
  left: number;
  crowded_out: number;
  connected: boolean;
}

export interface Problem {
  kind: string;
  offset: number | null;
  topic: string | null;
  message: string;
}

export interface Summary {
  name: string;
  format: string;
  library: string;
  profile: string;
  size: number;
  start: string;
  duration: number;
  is_empty: boolean;
  /** What lies far apart, such as recordings of different years; a single one as a rule. */
  stretches?: [number, number][];
  messages: number | null;
  topics: Topic[];
  frame_topics: string[];
  problems: Problem[];
  /** What varies, and so is worth a plot: filled in by the page after it has asked. */
  plots?: { topic: string; fields: string[] }[];
  /** A layout that the server was given, in JSON, and where tiles of maps come from. */
  layout?: unknown;
  tiles?: string | null;
  /** What the topics of several recordings start with, where they are kept apart. */
  prefixes?: string[];
  /** What a person can change. */
  changes?: { annotations: boolean; trouble: string | null; open: boolean; most_bytes: number };
  live: boolean;
  window: Window | null;
  /** Whether it answers queries. */
  sql?: boolean;
  /** What the recordings are called that the page can list; null where it cannot. */
  fleet?: string | null;
  /** Where this recording was opened from, if it was: the list of recordings, or another recording. */
  home?: string | null;
  /** Whether layouts can be kept on the server. */
  layouts?: boolean;
  version: string;
}

export interface PlayState {
  state: "paused" | "playing" | "buffering" | "ended";
  t: number;
  speed: number | null;
  loop: boolean;
  together: boolean;
  dropped: Record<string, number>;
  /** Of a running robot: whether this is the newest, and whether this moment has left the window. */
  following?: boolean;
  gone?: boolean;
}

export interface Edge {
  parent: string;
  child: string;
  static: boolean;
  pose: number[] | null;
  hz: number;
}

/** A message in one of the forms. What the other fields are depends on the form. */
export interface Shown {
  op: "message" | "nothing";
  topic: string;
  form: Form;
  t: number;
  type: string;
  size: number;
  error?: string;
  data?: Json;
  body?: ArrayBuffer;
  bodyOffset?: number;
  [more: string]: unknown;
}

export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

export interface Field {
  path: string;
  kind: "number" | "bool" | "enum" | "text";
}
