import { base } from "./base";
import type { Shown } from "./types";

interface Packet {
  t: number;
  at: number;
  size: number;
}

interface Packets {
  anew: boolean;
  codec: string | null;
  name: string | null;
  packets: Packet[];
}

/** So long after the last picture that was decoded, in nanoseconds, it is not worth to decode what lies between. */
const FAR = 20e9;

/**
 * The video of one topic. A picture of it needs all those before it, back to one that stands for itself: they are fetched
 * for the time that is shown, and those that were decoded already are not fetched again.
 */
export class Video {
  private decoder?: VideoDecoder;
  /** The time of the last packet that went into the decoder. */
  private fed?: number;
  private failure?: Error;
  private latest?: VideoFrame;
  private painted?: number;

  constructor(
    private topic: string,
    private paint: (frame: VideoFrame, t: number) => void,
  ) {}

  /** Shows the picture as of a message. */
  async show(shown: Shown, isPlaying: boolean): Promise<void> {
    if (!("VideoDecoder" in window))
      throw new Error(isSecureContext ? "This browser does not have WebCodecs, which are needed to decode video; Chrome, Edge, Safari and Firefox from 130 on have it." : "Browsers decode video only on https and localhost: open this page on the robot itself, or through a tunnel or a proxy with TLS.");
    if (this.painted === shown.t) return;
    const goesOn = this.decoder?.state === "configured" && this.fed !== undefined && shown.t >= this.fed && shown.t - this.fed < FAR;
    if (!goesOn) return this.decode(shown, isPlaying, false);
    // A browser may take a decoder away; another starts anew.
    return this.decode(shown, isPlaying, true).catch(() => this.decode(shown, isPlaying, false));
  }

  /** Decodes what is needed for a message: what is new since the last, or everything since one that stands for itself. */
  private async decode(shown: Shown, isPlaying: boolean, goesOn: boolean): Promise<void> {
    if (!goesOn) this.reset();
    const { head, body } = await this.fetch(shown.t, goesOn ? this.fed : undefined);
    if (head.packets.length === 0) return;
    if (head.anew) await this.start(head);
    this.failure = undefined;
    for (const packet of head.packets) {
      const isKey = head.anew && packet === head.packets[0];
      const data = new Uint8Array(body.buffer, body.byteOffset + packet.at, packet.size);
      this.decoder?.decode(new EncodedVideoChunk({ type: isKey ? "key" : "delta", timestamp: packet.t / 1000, data }));
      this.fed = packet.t;
    }
    await this.settle(head.packets[head.packets.length - 1].t, isPlaying);
  }

  dispose(): void {
    this.reset();
  }

  private reset(): void {
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
    this.decoder = undefined;
    this.fed = undefined;
    this.latest?.close();
    this.latest = undefined;
  }

  private async fetch(t: number, after: number | undefined): Promise<{ head: Packets; body: Uint8Array }> {
    const query = new URLSearchParams({ topic: this.topic, t: String(t), ...(after !== undefined && { after: String(after) }) });
    const response = await fetch(`${base}api/video?${query}`);
    if (!response.ok) throw new Error(((await response.json()) as { error: string }).error);
    const bytes = await response.arrayBuffer();
    const length = new DataView(bytes).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))) as Packets;
    return { head, body: new Uint8Array(bytes, 4 + length) };
  }

  private async start(head: Packets): Promise<void> {
    this.reset();
    const config: VideoDecoderConfig = { codec: head.codec ?? "", optimizeForLatency: true };
    const { supported } = await VideoDecoder.isConfigSupported(config).catch(() => ({ supported: false }));
    if (!supported) throw new Error(`This browser cannot decode ${head.name ?? "this video"} (${head.codec ?? "no parameters"}). Another browser may, or one with a graphics card; \`asof export --format video\` writes it for a player.`);
    this.decoder = new VideoDecoder({
      output: (frame) => {
        this.latest?.close();
        this.latest = frame;
      },
      error: (error) => (this.failure = error),
    });
    this.decoder.configure(config);
  }

  /** Waits until what went in has come out, and paints it. */
  private async settle(t: number, isPlaying: boolean): Promise<void> {
    const { decoder } = this;
    if (!decoder) return;
    const isOut = () => this.latest !== undefined && this.latest.timestamp >= Math.floor(t / 1000) - 1;
    for (let wait = 0; wait < 60 && !isOut() && !this.failure; wait++) {
      if (decoder.decodeQueueSize === 0 && wait > 4) break;
      await new Promise((resolve) => setTimeout(resolve, 8));
    }
    // It keeps the last pictures to put them in order. While it plays, they come with the next; where it stands, they are
    // asked for, and what comes next starts anew.
    if (!isOut() && !this.failure && !(isPlaying && this.latest) && decoder.state === "configured") {
      await decoder.flush().catch((error: Error) => (this.failure = error));
      this.fed = undefined;
    }
    if (this.failure) {
      this.reset();
      throw new Error(`This video cannot be decoded: ${this.failure.message}`);
    }
    if (!this.latest) return;
    this.paint(this.latest, t);
    this.painted = isOut() ? t : undefined;
  }
}
