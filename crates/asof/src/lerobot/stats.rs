//! Statistics of features: of one episode, and of all.

use serde_json::{Value, json};

/// The quantiles of LeRobot's statistics.
const QUANTILES: [(&str, f64); 5] = [
    ("q01", 0.01),
    ("q10", 0.10),
    ("q50", 0.50),
    ("q90", 0.90),
    ("q99", 0.99),
];

/// The statistics of a feature: each has a name, and a number for each of the feature's.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stats {
    /// `min`, `max`, `mean`, `std`, and the quantiles.
    pub(super) values: Vec<(&'static str, Vec<f64>)>,
    /// The number of frames.
    pub(super) count: u64,
    /// Whether they are of the channels of pictures, which are nested in two more lists.
    pub(super) is_picture: bool,
}

impl Stats {
    /// For rows of `width` numbers.
    pub(super) fn of_rows(values: &[f32], width: usize) -> Self {
        let rows = values.len() / width.max(1);
        let mut columns: Vec<Vec<f64>> = vec![Vec::with_capacity(rows); width];
        for row in values.chunks_exact(width.max(1)) {
            for (column, value) in columns.iter_mut().zip(row) {
                column.push(f64::from(*value));
            }
        }
        Stats::of_columns(columns, rows as u64)
    }

    /// For one number per row.
    pub(super) fn of_column(values: impl IntoIterator<Item = f64>) -> Self {
        let column: Vec<f64> = values.into_iter().collect();
        let count = column.len() as u64;
        Stats::of_columns(vec![column], count)
    }

    fn of_columns(mut columns: Vec<Vec<f64>>, count: u64) -> Self {
        let mut stats = Stats::empty(count, false);
        for column in &mut columns {
            column.sort_by(f64::total_cmp);
            let total = column.len().max(1) as f64;
            let mean = column.iter().sum::<f64>() / total;
            let variance = column
                .iter()
                .map(|value| (value - mean).powi(2))
                .sum::<f64>()
                / total;
            let first = column.first().copied().unwrap_or(0.0);
            let last = column.last().copied().unwrap_or(0.0);
            let quantile = |share: f64| between(column, share);
            stats.push([first, last, mean, variance.sqrt()], quantile);
        }
        stats
    }

    fn empty(count: u64, is_picture: bool) -> Self {
        let names = ["min", "max", "mean", "std"].into_iter();
        let names = names.chain(QUANTILES.map(|(name, _)| name));
        Stats {
            values: names.map(|name| (name, Vec::new())).collect(),
            count,
            is_picture,
        }
    }

    fn push(&mut self, plain: [f64; 4], quantile: impl Fn(f64) -> f64) {
        let quantiles = QUANTILES.map(|(_, share)| quantile(share));
        let all = plain.into_iter().chain(quantiles);
        for ((_, values), value) in self.values.iter_mut().zip(all) {
            values.push(value);
        }
    }

    /// Those of several episodes together. Quantiles are averaged, as LeRobot does.
    pub(super) fn united(parts: &[&Stats]) -> Option<Self> {
        let first = *parts.first()?;
        let count: u64 = parts.iter().map(|part| part.count).sum();
        let weight = |part: &Stats| part.count as f64 / count.max(1) as f64;
        let named = |part: &Stats, name: &str, at: usize| {
            let found = part.values.iter().find(|(own, _)| *own == name);
            found
                .and_then(|(_, values)| values.get(at).copied())
                .unwrap_or(0.0)
        };
        let mut united = Stats::empty(count, first.is_picture);
        united.values.retain(|(name, _)| {
            let has = |part: &&Stats| part.values.iter().any(|(own, _)| own == name);
            parts.iter().all(has)
        });
        let width = first.values.first().map_or(0, |(_, values)| values.len());
        for at in 0..width {
            let mean: f64 = parts
                .iter()
                .map(|part| named(part, "mean", at) * weight(part))
                .sum();
            for (name, values) in &mut united.values {
                let each = parts.iter().map(|part| named(part, name, at));
                values.push(match *name {
                    "min" => each.fold(f64::INFINITY, f64::min),
                    "max" => each.fold(f64::NEG_INFINITY, f64::max),
                    "std" => {
                        let spread = parts.iter().map(|part| {
                            let apart = named(part, "mean", at) - mean;
                            (named(part, "std", at).powi(2) + apart.powi(2)) * weight(part)
                        });
                        spread.sum::<f64>().sqrt()
                    }
                    _ => each
                        .zip(parts)
                        .map(|(value, part)| value * weight(part))
                        .sum(),
                });
            }
        }
        Some(united)
    }

    /// Those of `stats.json`, of the same shape as others; what is missing there is left out of both when they are united.
    pub(super) fn from_json(known: &Value, like: &Stats) -> Self {
        let numbers = |value: &Value| -> Vec<f64> {
            let items = value.as_array().into_iter().flatten();
            let number = |mut item: &Value| {
                while let Some(inner) = item.get(0) {
                    item = inner;
                }
                item.as_f64().unwrap_or(f64::NAN)
            };
            items.map(number).collect()
        };
        let values = like.values.iter();
        let values = values.map(|(name, own)| (*name, numbers(&known[*name]), own.len()));
        Stats {
            values: values
                .filter(|(_, found, count)| found.len() == *count)
                .map(|(name, found, _)| (name, found))
                .collect(),
            count: known["count"][0].as_u64().unwrap_or(0),
            is_picture: like.is_picture,
        }
    }

    /// Their form in `stats.json`.
    pub(super) fn to_json(&self) -> Value {
        let shaped = |value: &f64| {
            if self.is_picture {
                json!([[value]])
            } else {
                json!(value)
            }
        };
        let mut all: serde_json::Map<String, Value> = serde_json::Map::new();
        for (name, values) in &self.values {
            all.insert((*name).to_owned(), values.iter().map(shaped).collect());
        }
        all.insert("count".to_owned(), json!([self.count]));
        Value::Object(all)
    }
}

/// The quantile of a sorted column, interpolated between its values.
fn between(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = share * last as f64;
    let (low, part) = (place.floor() as usize, place.fract());
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * part
}

/// Histograms of the channels of pictures.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    seen: Vec<Vec<u64>>,
    pictures: u64,
    /// What a value is divided by: colours are scaled to 0 to 1, depths are not scaled.
    scale: f64,
}

impl Histogram {
    pub(super) fn new(channels: usize, bits: usize) -> Self {
        Histogram {
            seen: vec![vec![0; 1 << bits]; channels],
            pictures: 0,
            scale: if bits == 8 { 255.0 } else { 1.0 },
        }
    }

    /// Counts some of a picture's pixels: of large ones, as many rows and columns as LeRobot takes.
    pub(super) fn count(&mut self, pixels: &asof_decode::Pixels) {
        let wide = pixels.bits / 8;
        let step = thinned(pixels.width, pixels.height);
        let row = pixels.width * pixels.channels * wide;
        for y in (0..pixels.height).step_by(step) {
            for x in (0..pixels.width).step_by(step) {
                for (channel, seen) in self.seen.iter_mut().enumerate() {
                    let at = y * row + (x * pixels.channels + channel) * wide;
                    let value = match pixels.data.get(at..at + wide) {
                        Some(&[one]) => usize::from(one),
                        Some(&[one, two]) => usize::from(u16::from_ne_bytes([one, two])),
                        _ => continue,
                    };
                    if let Some(count) = seen.get_mut(value) {
                        *count += 1;
                    }
                }
            }
        }
        self.pictures += 1;
    }

    /// The statistics; `None` where nothing was counted.
    pub(super) fn stats(&self) -> Option<Stats> {
        if self.pictures == 0 {
            return None;
        }
        let mut stats = Stats::empty(self.pictures, true);
        for seen in &self.seen {
            let total: u64 = seen.iter().sum();
            let weighted = |power: &dyn Fn(f64) -> f64| {
                let sums = seen
                    .iter()
                    .enumerate()
                    .map(|(value, count)| power(value as f64) * *count as f64);
                sums.sum::<f64>() / total.max(1) as f64
            };
            let mean = weighted(&|value| value);
            let variance = weighted(&|value| (value - mean).powi(2));
            let first = seen.iter().position(|count| *count > 0).unwrap_or(0) as f64;
            let last = seen.iter().rposition(|count| *count > 0).unwrap_or(0) as f64;
            let quantile = |share: f64| {
                let wanted = share * total as f64;
                let mut below = 0_u64;
                let found = seen.iter().position(|count| {
                    below += count;
                    below as f64 >= wanted && *count > 0
                });
                found.unwrap_or(0) as f64 / self.scale
            };
            let plain = [first, last, mean, variance.sqrt()].map(|value| value / self.scale);
            stats.push(plain, quantile);
        }
        Some(stats)
    }
}

/// The step between rows and columns of a picture that are counted.
pub(super) fn thinned(width: usize, height: usize) -> usize {
    let longest = width.max(height);
    if longest < 300 { 1 } else { longest / 150 }
}

/// Whether a frame of an episode is sampled for the statistics of pictures.
pub(super) fn is_sampled(frame: usize, frames: usize) -> bool {
    let wanted = ((frames as f64).powf(0.75) as usize)
        .clamp(100, 10_000)
        .min(frames.max(1));
    frame == 0 || frame * wanted / frames.max(1) != (frame - 1) * wanted / frames.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(stats: &Stats, name: &str) -> Vec<f64> {
        let found = stats.values.iter().find(|(own, _)| *own == name);
        found.expect("a statistic").1.clone()
    }

    #[test]
    fn each_number_of_a_row_has_its_own() {
        let stats = Stats::of_rows(&[1.0, 10.0, 3.0, 10.0], 2);
        assert_eq!(stats.count, 2);
        assert_eq!(named(&stats, "min"), [1.0, 10.0]);
        assert_eq!(named(&stats, "max"), [3.0, 10.0]);
        assert_eq!(named(&stats, "mean"), [2.0, 10.0]);
        assert_eq!(named(&stats, "std"), [1.0, 0.0]);
        assert_eq!(named(&stats, "q50"), [2.0, 10.0]);
    }

    #[test]
    fn episodes_together_are_as_one() {
        let values: Vec<f64> = (0..20).map(|n| f64::from(n * n % 13)).collect();
        let whole = Stats::of_column(values.iter().copied());
        let (one, other) = values.split_at(5);
        let parts = [
            Stats::of_column(one.to_vec()),
            Stats::of_column(other.to_vec()),
        ];
        let united = Stats::united(&[&parts[0], &parts[1]]).expect("statistics");
        assert_eq!(united.count, 20);
        for name in ["min", "max", "mean", "std"] {
            let (one, other) = (named(&united, name)[0], named(&whole, name)[0]);
            assert!((one - other).abs() < 1e-9, "{name}: {one} and {other}");
        }
    }

    #[test]
    fn colours_go_from_zero_to_one() {
        let mut seen = Histogram::new(3, 8);
        assert_eq!(seen.stats(), None);
        seen.count(&asof_decode::Pixels {
            width: 2,
            height: 1,
            channels: 3,
            bits: 8,
            data: vec![0, 51, 255, 255, 51, 255],
        });
        let stats = seen.stats().expect("statistics");
        assert_eq!(named(&stats, "mean"), [0.5, 0.2, 1.0]);
        assert_eq!(named(&stats, "q99"), [1.0, 0.2, 1.0]);
        assert_eq!(stats.to_json()["min"], json!([[[0.0]], [[0.2]], [[1.0]]]));
    }

    #[test]
    fn a_hundred_frames_are_sampled_or_all() {
        let count = |frames| {
            (0..frames)
                .filter(|frame| is_sampled(*frame, frames))
                .count()
        };
        assert_eq!(
            (count(1), count(60), count(100), count(450)),
            (1, 60, 100, 100)
        );
        assert_eq!(count(10_000), 1000);
    }
}
