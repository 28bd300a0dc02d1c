/** The types of the API, described in crates/asof-serve/API.md. Times are nanoseconds since the recording's start. */

export type Form = "json" | "image" | "points" | "grid" | "columns";

export interface Topic {
  topic: string;
  type: string;
  encoding: string;
  schema_encoding: string;
  messages: number | null;
  hz: number | null;
  role: string | null;
  /** Default fields to plot, by type. */
  plot?: string[];
  /** Of a running robot: messages that have left the window. */
  left?: number;
}

/** The window of a growing source, such as a running robot. */
export interface Window {
  from: number;
  to: number;
  /** The age limit; null for a file that is being written, which keeps everything. */
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
  /** Ranges that are far apart, such as recordings of different years; usually one. */
  stretches?: [number, number][];
  messages: number | null;
  topics: Topic[];
  frame_topics: string[];
  problems: Problem[];
  /** Fields that vary; filled in by the page. */
  plots?: { topic: string; fields: string[] }[];
  /** The server's layout in JSON, and its address of map tiles. */
  layout?: unknown;
  tiles?: string | null;
  /** The topic prefixes of several recordings. */
  prefixes?: string[];
  /** What the user can change. */
  changes?: { annotations: boolean; trouble: string | null; open: boolean; most_bytes: number };
  live: boolean;
  window: Window | null;
  /** Whether it answers queries. */
  sql?: boolean;
  /** The title of the list of recordings; null without one. */
  fleet?: string | null;
  /** The title of the list or recording that this one was opened from. */
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
  /** Of a running robot: whether it is followed, and whether the current time has left the window. */
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

/** A message in one of the forms, which determines the other fields. */
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
