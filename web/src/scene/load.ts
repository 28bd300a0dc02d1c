/**
 * Levels of detail for software rendering during playback: frames per second, and points of all
 * clouds together. Each level is less work than the one before.
 */
const STEPS = [
  { rate: 10, points: 100_000 },
  { rate: 10, points: 40_000 },
  { rate: 5, points: 40_000 },
  { rate: 2, points: 40_000 },
  { rate: 1, points: 20_000 },
  { rate: 0.5, points: 10_000 },
];
/** The fewest points of a cloud. */
const FEWEST = 5_000;
/** The level before frame times are known, */
const UNKNOWN = 4;
/** which takes this many frames. */
const ENOUGH = 4;
/** The share of the frame interval that rendering may take. */
const BUSY = 0.7;
/** The level drops after this many slow frames in a row. */
const PATIENCE = 2;
/** The time after a change of level before the next one, in milliseconds. */
const SETTLE = 1000;
/** A better level is tried after this many milliseconds with time to spare; doubled after a failure. */
const CALM = 6000;

/**
 * Adapts the level of detail during playback, so that a frame rate is kept: the server is asked
 * for no more messages and points than can be rendered. What is left out is shown. While paused, and with a GPU, everything
 * is rendered.
 */
export class Load {
  private step = 0;
  private slow = 0;
  private calmSince = -Infinity;
  private calm = CALM;
  private steppedAt = -Infinity;
  private playing = false;
  /** The recent frame time in milliseconds. */
  private usual = 0;
  private measured = 0;

  constructor(
    readonly isSoftware: boolean,
    private clouds: () => number,
    private changed: () => void,
  ) {}

  /** Whether it is playing. */
  set isPlaying(is: boolean) {
    if (is === this.playing) return;
    this.playing = is;
    this.slow = 0;
    // Start at a level that recent frame times allow, instead of dropping messages first.
    if (is) this.step = Math.max(this.step, this.measured < ENOUGH ? UNKNOWN : this.fitting());
    this.steppedAt = this.calmSince = performance.now();
    this.changed();
  }

  /** The most frames per second, if limited. */
  get rate(): number | undefined {
    if (!this.isSoftware) return undefined;
    return this.playing ? STEPS[this.step].rate : STEPS[0].rate;
  }

  /** The shortest time between two frames, in milliseconds. */
  get pause(): number {
    return this.rate === undefined ? 0 : 1000 / this.rate;
  }

  /** The most points of a cloud; undefined without a limit. */
  get most(): number | undefined {
    if (!this.isSoftware || !this.playing) return undefined;
    return Math.max(Math.round(STEPS[this.step].points / Math.max(this.clouds(), 1)), FEWEST);
  }

  /** A message was replaced before it was rendered. */
  late(): void {
    if (this.isSoftware && this.playing && performance.now() - this.steppedAt > SETTLE) this.less();
  }

  /** A frame was rendered in this many milliseconds. */
  painted(took: number): void {
    this.usual = this.measured++ === 0 ? took : this.usual * 0.7 + took * 0.3;
    if (!this.isSoftware || !this.playing) return;
    const now = performance.now();
    if (this.measured === ENOUGH) return this.go(this.fitting(), now);
    if (now - this.steppedAt < SETTLE) return;
    this.slow = took > this.pause * BUSY ? this.slow + 1 : 0;
    if (this.slow >= PATIENCE) return this.less();
    // Do not try a better level that would exceed the frame budget.
    const better = STEPS[Math.max(this.step - 1, 0)];
    if (took > (1000 / better.rate) * BUSY * 0.5) this.calmSince = now;
    if (this.step > 0 && now - this.calmSince > this.calm) this.go(this.step - 1, now);
  }

  /** The best level within the frame budget. */
  private fitting(): number {
    const first = STEPS.findIndex(({ rate }) => this.usual < (1000 / rate) * BUSY);
    return first < 0 ? STEPS.length - 1 : first;
  }

  private less(): void {
    const now = performance.now();
    if (now - this.calmSince < this.calm) this.calm = Math.min(this.calm * 2, 60_000);
    if (this.step < STEPS.length - 1) this.go(this.step + 1, now);
  }

  private go(step: number, now: number): void {
    this.step = step;
    this.slow = 0;
    this.steppedAt = this.calmSince = now;
    this.changed();
  }
}
