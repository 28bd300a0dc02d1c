/**
 * How much is drawn while it is played, where the processor stands in for a graphics card: pictures a second, and points of all
 * clouds together. Every step is less work than the one before it.
 */
const STEPS = [
  { rate: 10, points: 100_000 },
  { rate: 10, points: 40_000 },
  { rate: 5, points: 40_000 },
  { rate: 2, points: 40_000 },
  { rate: 1, points: 20_000 },
  { rate: 0.5, points: 10_000 },
];
/** The fewest points that a cloud is still one with. */
const FEWEST = 5_000;
/** Where it begins before it is known how long a picture takes, */
const UNKNOWN = 4;
/** which is known by so many of them. */
const ENOUGH = 4;
/** A picture may take this part of the time until the next one: the rest is for everything else. */
const BUSY = 0.7;
/** So many pictures in a row that take longer are too much; one can be by chance. */
const PATIENCE = 2;
/** So many milliseconds after a step it is seen what it was good for. */
const SETTLE = 1000;
/** After so many milliseconds with time to spare, the next better step is tried. It is doubled when that was too much. */
const CALM = 6000;

/**
 * What there is time for while it is played. It settles on a number of pictures a second that it can keep: the server is asked
 * for no more messages than that, and for no more points than can be drawn. What is left out is said. What stands still is shown
 * whole, and where there is a graphics card so is everything.
 */
export class Load {
  private step = 0;
  private slow = 0;
  private calmSince = -Infinity;
  private calm = CALM;
  private steppedAt = -Infinity;
  private playing = false;
  /** How long a picture takes, in milliseconds, by the last few of them. */
  private usual = 0;
  private measured = 0;

  constructor(
    readonly isSoftware: boolean,
    private clouds: () => number,
    private changed: () => void,
  ) {}

  /** Whether it is played now. */
  set isPlaying(is: boolean) {
    if (is === this.playing) return;
    this.playing = is;
    this.slow = 0;
    // It begins with what can be kept, by what pictures took until now, rather than with messages that are lost.
    if (is) this.step = Math.max(this.step, this.measured < ENOUGH ? UNKNOWN : this.fitting());
    this.steppedAt = this.calmSince = performance.now();
    this.changed();
  }

  /** The most pictures a second, where there is a limit. */
  get rate(): number | undefined {
    if (!this.isSoftware) return undefined;
    return this.playing ? STEPS[this.step].rate : STEPS[0].rate;
  }

  /** The least time between two pictures, in milliseconds. */
  get pause(): number {
    return this.rate === undefined ? 0 : 1000 / this.rate;
  }

  /** The most points of a cloud; without it, all of them. */
  get most(): number | undefined {
    if (!this.isSoftware || !this.playing) return undefined;
    return Math.max(Math.round(STEPS[this.step].points / Math.max(this.clouds(), 1)), FEWEST);
  }

  /** A message gave way to a later one before it was painted. */
  late(): void {
    if (this.isSoftware && this.playing && performance.now() - this.steppedAt > SETTLE) this.less();
  }

  /** A picture was painted, and took so many milliseconds until there was time for anything else. */
  painted(took: number): void {
    this.usual = this.measured++ === 0 ? took : this.usual * 0.7 + took * 0.3;
    if (!this.isSoftware || !this.playing) return;
    const now = performance.now();
    if (this.measured === ENOUGH) return this.go(this.fitting(), now);
    if (now - this.steppedAt < SETTLE) return;
    this.slow = took > this.pause * BUSY ? this.slow + 1 : 0;
    if (this.slow >= PATIENCE) return this.less();
    // What takes longer than it may at the next better step is not tried there.
    const better = STEPS[Math.max(this.step - 1, 0)];
    if (took > (1000 / better.rate) * BUSY * 0.5) this.calmSince = now;
    if (this.step > 0 && now - this.calmSince > this.calm) this.go(this.step - 1, now);
  }

  /** The best step at which pictures take no longer than they may. */
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
