import { packetsOf, type Packet } from "../packets";
import type { Context, Panel, PanelSpec } from "../context";
import { navigate } from "../context";
import { canvas, color, empty, h } from "../dom";
import { register } from "../registry";

interface Head {
  format: { name: string; rate: number | null; channels: number | null };
  /** Whether there is more than was sent. */
  cut: boolean;
  packets: Packet[];
}

/** Sound without a pause, with its start time. */
interface Segment {
  t: number;
  sound: AudioBuffer;
  /** The minimum and maximum of each block of samples. */
  peaks: Float32Array;
}

/** Samples per block of the waveform. */
const BLOCK = 128;
/** A gap of more seconds than this starts another segment. */
const PAUSE = 1;
/** The largest offset between sound and playback, in seconds. */
const DRIFT = 0.15;

/** The sound of a topic: its waveform, and playback in sync with the recording. */
class AudioPanel {
  readonly element: HTMLElement;
  private picture: ReturnType<typeof canvas>;
  private note = h("div", { class: "overlay" });
  readonly listen = h("button", { class: "plain text", "aria-pressed": "false", title: "Hear it while the recording plays at its own speed", onclick: () => this.toggle() }, "Listen");
  private segments: Segment[] = [];
  private player?: AudioContext;
  private source?: AudioBufferSourceNode;
  /** The time of the recording at which the source began, and when that was. */
  private begun = { t: 0, at: 0 };
  private stops: (() => void)[];

  constructor(
    private context: Context,
    readonly topic: string,
  ) {
    this.picture = canvas(`Waveform of ${topic}`, (context2d, width, height) => this.draw(context2d, width, height));
    this.note.append(empty("Reading the sound", topic));
    this.element = h("div", { class: "body audio" }, this.picture.element, this.note);
    navigate(this.picture.element, context, () => ({ left: 0, width: this.picture.element.clientWidth }));
    const { connection, view } = context;
    this.stops = [connection.on("state", () => (this.follow(), this.picture.redraw())), view.on(this.picture.redraw)];
    void this.read();
  }

  dispose(): void {
    this.stops.forEach((stop) => stop());
    this.silence();
    void this.player?.close();
  }

  private async read(): Promise<void> {
    try {
      await this.context.connection.first();
      const { head, body } = await packetsOf<Head>("sound", { topic: this.topic });
      this.segments = await segmentsOf(head, body);
      this.element.dataset.seconds = this.segments.reduce((all, { sound }) => all + sound.duration, 0).toFixed(2);
      this.note.replaceChildren(head.cut ? h("p", { class: "faint" }, "The rest is too long to be shown.") : "");
      this.picture.redraw();
    } catch (error) {
      this.note.replaceChildren(empty("This sound cannot be played", (error as Error).message));
    }
  }

  private toggle(): void {
    const isOn = this.listen.getAttribute("aria-pressed") !== "true";
    this.listen.setAttribute("aria-pressed", String(isOn));
    // Browsers start sound only after a click.
    this.player ??= new AudioContext();
    void this.player.resume();
    this.follow();
  }

  /** Plays the sound at the current time. */
  private follow(): void {
    const { player } = this;
    const { state, speed } = this.context.connection.state;
    const isOn = this.listen.getAttribute("aria-pressed") === "true";
    if (!player || !isOn || state !== "playing" || speed !== 1) return this.silence();
    const t = this.context.connection.position();
    if (this.source && Math.abs(this.begun.t / 1e9 + player.currentTime - this.begun.at - t / 1e9) < DRIFT) return;
    this.silence();
    const segment = this.segments.find((one) => t >= one.t && t < one.t + one.sound.duration * 1e9);
    if (!segment) return;
    const source = player.createBufferSource();
    source.buffer = segment.sound;
    source.connect(player.destination);
    source.onended = () => {
      if (this.source === source) this.source = undefined;
    };
    source.start(0, (t - segment.t) / 1e9);
    this.source = source;
    this.begun = { t, at: player.currentTime };
    this.element.dataset.heard = (t / 1e9).toFixed(2);
  }

  private silence(): void {
    this.source?.stop();
    this.source = undefined;
  }

  private draw(context2d: CanvasRenderingContext2D, width: number, height: number): void {
    const { view, connection } = this.context;
    const perPixel = (view.end - view.start) / Math.max(width, 1);
    context2d.fillStyle = color("accent");
    for (const { t, sound, peaks } of this.segments) {
      const perBlock = (BLOCK / sound.sampleRate) * 1e9;
      const first = Math.max(0, Math.floor((t - view.start) / perPixel));
      const last = Math.min(width, Math.ceil((t + sound.duration * 1e9 - view.start) / perPixel));
      for (let x = first; x < last; x++) {
        const from = Math.max(0, Math.floor((view.start + x * perPixel - t) / perBlock));
        const to = Math.min(peaks.length / 2, Math.max(from + 1, Math.ceil((view.start + (x + 1) * perPixel - t) / perBlock)));
        let [least, most] = [0, 0];
        for (let block = from; block < to; block++) {
          least = Math.min(least, peaks[2 * block]);
          most = Math.max(most, peaks[2 * block + 1]);
        }
        const top = (height / 2) * (1 - most);
        context2d.fillRect(x, top, 1, Math.max(1, (height / 2) * (1 - least) - top));
      }
    }
    context2d.fillStyle = color("mark");
    context2d.fillRect((connection.position() - view.start) / perPixel - 0.5, 0, 1.5, height);
  }
}

/** Decodes messages without a gap together. */
async function segmentsOf(head: Head, body: Uint8Array): Promise<Segment[]> {
  const { name, rate, channels } = head.format;
  const isRaw = name.startsWith("pcm");
  const perSecond = (rate || 16000) * (channels || 1) * 2;
  const runs: Packet[][] = [];
  let end = -Infinity;
  for (const packet of head.packets) {
    if (packet.t > end + PAUSE * 1e9) runs.push([]);
    runs[runs.length - 1].push(packet);
    end = Math.max(end, packet.t) + (isRaw ? (packet.size / perSecond) * 1e9 : 0);
    if (!isRaw) end = packet.t;
  }
  const segments: Segment[] = [];
  for (const run of runs) {
    const last = run[run.length - 1];
    const data = body.slice(run[0].at, last.at + last.size);
    const sound = isRaw ? samplesOf(data, rate || 16000, channels || 1) : await decoded(data, name);
    segments.push({ t: run[0].t, sound, peaks: peaksOf(sound) });
  }
  return segments;
}

async function decoded(data: Uint8Array<ArrayBuffer>, name: string): Promise<AudioBuffer> {
  const one = new OfflineAudioContext(1, 1, 44100);
  return one.decodeAudioData(data.buffer).catch(() => {
    throw new Error(`This browser cannot decode ${name}.`);
  });
}

/** Signed samples of 16 bits, little endian. */
function samplesOf(data: Uint8Array, rate: number, channels: number): AudioBuffer {
  const count = Math.max(1, Math.floor(data.length / 2 / channels));
  const sound = new AudioBuffer({ length: count, numberOfChannels: channels, sampleRate: rate });
  const bytes = new DataView(data.buffer, data.byteOffset, data.length);
  for (let channel = 0; channel < channels; channel++) {
    const samples = sound.getChannelData(channel);
    for (let at = 0; at < count && 2 * (at * channels + channel) + 1 < data.length; at++) samples[at] = bytes.getInt16(2 * (at * channels + channel), true) / 32768;
  }
  return sound;
}

function peaksOf(sound: AudioBuffer): Float32Array {
  const samples = sound.getChannelData(0);
  const peaks = new Float32Array(2 * Math.ceil(samples.length / BLOCK));
  samples.forEach((sample, at) => {
    const block = 2 * Math.floor(at / BLOCK);
    peaks[block] = Math.min(peaks[block], sample);
    peaks[block + 1] = Math.max(peaks[block + 1], sample);
  });
  return peaks;
}

function audioPanel(context: Context, spec: PanelSpec): Panel {
  const panel = new AudioPanel(context, spec.topic ?? "");
  return { element: panel.element, title: panel.topic, controls: [panel.listen], spec: () => ({ kind: "audio", topic: panel.topic }), dispose: () => panel.dispose() };
}

register({ kind: "audio", title: "Audio", make: audioPanel, takes: (topic) => topic.role === "audio" });
