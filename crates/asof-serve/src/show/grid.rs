//! Grid maps.

use asof_decode::{GridLayer, PackedField, PackedKind, Record};
use serde_json::json;

use super::Shown;

/// The most cells along a side; larger maps are thinned out.
const MOST_CELLS: usize = 2048;

/// An unknown cell.
const UNKNOWN: u8 = 255;

/// The cells of a map, row by row from the origin, a byte each: 0 free to 100 occupied, 255 unknown. Values that are
/// not occupancies are scaled from their minimum to their maximum, which `range` has. Of several layers, the `chosen`
/// one.
///
/// `patches` are applied to maps of occupancies and costs.
pub(super) fn show(
    record: &Record,
    archetype: &str,
    chosen: Option<&str>,
    patches: &[Patch],
) -> Result<Shown, String> {
    match archetype {
        "GridMap" => layer(record, chosen),
        _ if record.number("cell_stride").is_some() => packed(record),
        _ => occupancies(record, archetype == "Costmap", patches),
    }
}

/// The topic of the map that a topic updates, by the names of Nav2 and of ROS 1's costmaps.
pub(super) fn base_of(topic: &str) -> Option<&str> {
    let updates = ["_updates", "_update"];
    updates.into_iter().find_map(|end| topic.strip_suffix(end))
}

/// The most updates of a map that are applied: those since the map, or the newest of them.
pub(super) const MOST_UPDATES: usize = 2000;
/// About the most bytes of those.
pub(super) const MOST_UPDATE_BYTES: usize = 32 << 20;

/// New cells for a rectangle of a map.
pub(super) struct Patch {
    x: usize,
    y: usize,
    width: usize,
    cells: Vec<u8>,
}

impl Patch {
    pub fn of(record: &Record) -> Result<Self, String> {
        let number = |name: &str| {
            let found = record.number(name).filter(|&number| number >= 0.0);
            found.ok_or_else(|| format!("it has no field '{name}'"))
        };
        let (width, height) = (number("width")? as usize, number("height")? as usize);
        let cells = record.bytes("data").ok_or("it has no field 'data'")?;
        if width.checked_mul(height) != Some(cells.len()) {
            let text = format!("an update of {width} by {height} cells cannot have");
            return Err(format!("{text} {}", cells.len()));
        }
        Ok(Patch {
            x: number("x")? as usize,
            y: number("y")? as usize,
            width,
            cells,
        })
    }

    /// Writes its cells into a map, as far as they lie within it.
    fn apply(&self, cells: &mut [u8], columns: usize) {
        let kept = self.width.min(columns.saturating_sub(self.x));
        if kept == 0 {
            return;
        }
        let rows = cells.chunks_exact_mut(columns).skip(self.y);
        for (row, patch) in rows.zip(self.cells.chunks_exact(self.width)) {
            row[self.x..self.x + kept].copy_from_slice(&patch[..kept]);
        }
    }
}

/// The occupancies of ROS, or the costs of Nav2, which are unsigned.
fn occupancies(record: &Record, are_costs: bool, patches: &[Patch]) -> Result<Shown, String> {
    let number = |name: &str| {
        record
            .number(name)
            .ok_or_else(|| format!("it has no field '{name}'"))
    };
    let (width, height) = (number("width")? as usize, number("height")? as usize);
    let resolution = number("resolution")?;
    if !resolution.is_finite() || resolution <= 0.0 {
        return Err(format!(
            "its resolution is {resolution}, which is not a valid cell size"
        ));
    }
    let mut cells = record.bytes("data").ok_or("it has no field 'data'")?;
    if width.checked_mul(height) != Some(cells.len()) {
        return Err(format!(
            "a map of {width} by {height} cells cannot have {}",
            cells.len()
        ));
    }
    for patch in patches {
        patch.apply(&mut cells, width);
    }
    let size = (width, height);
    if are_costs {
        for cell in &mut cells {
            *cell = occupancy_of(*cell);
        }
    }
    let mut shown = thinned(size, &cells, resolution, record.pose());
    if are_costs {
        shown.head["palette"] = "costmap".into();
    }
    Ok(shown)
}

/// A cost of Nav2 as an occupancy, as in its own maps: 254 is an obstacle, 253 the inscribed radius around one.
fn occupancy_of(cost: u8) -> u8 {
    match cost {
        255 => UNKNOWN,
        254 => 100,
        253 => 99,
        0 => 0,
        cost => 1 + (u32::from(cost - 1) * 97 / 251) as u8,
    }
}

/// A layer of a multi-layer map, around its centre.
fn layer(record: &Record, chosen: Option<&str>) -> Result<Shown, String> {
    let names = GridLayer::names(record);
    // A layer that is gone is replaced by the first.
    let chosen = chosen.filter(|chosen| names.iter().any(|name| name == chosen));
    let layer = GridLayer::of(record, chosen).map_err(|error| error.to_string())?;
    let (cells, range) = shades(&layer.values, PackedKind::F32);
    let size = (layer.width, layer.height);
    let mut shown = thinned(size, &cells, layer.resolution, record.pose());
    shown.head["anchor"] = "center".into();
    shown.head["layer"] = layer.name.into();
    shown.head["fields"] = json!(names);
    tell_range(&mut shown, range);
    Ok(shown)
}

fn tell_range(shown: &mut Shown, range: Option<(f64, f64)>) {
    if let Some((least, most)) = range {
        shown.head["palette"] = "range".into();
        shown.head["range"] = json!([least, most]);
    }
}

/// Foxglove's grid: cells of packed fields, the first of which is shown.
fn packed(record: &Record) -> Result<Shown, String> {
    let number = |name: &str| {
        let found = record.number(name).filter(|&number| number >= 1.0);
        found.ok_or_else(|| format!("it has no field '{name}'"))
    };
    let width = number("width")? as usize;
    let (row, cell) = (
        number("row_stride")? as usize,
        number("cell_stride")? as usize,
    );
    let data = record.bytes("data").ok_or("it has no field 'data'")?;
    if width.checked_mul(cell).is_none_or(|bytes| bytes > row) {
        return Err(format!(
            "{width} cells of {cell} bytes do not fit into a row of {row}"
        ));
    }
    let all = PackedField::all_of(record).map_err(|error| error.to_string())?;
    let field = all.first().ok_or("its cells have no fields")?;
    let rows = data.chunks_exact(row);
    let height = rows.len();
    let values: Vec<f64> = rows
        .flat_map(|row| row.chunks_exact(cell).take(width))
        .map(|cell| field.value(cell, false))
        .collect();
    let (cells, range) = shades(&values, field.kind);
    let resolution = record.number("cell_size[0]").unwrap_or(1.0);
    let mut shown = thinned((width, height), &cells, resolution, record.pose());
    tell_range(&mut shown, range);
    Ok(shown)
}

/// Occupancies unchanged; other values scaled from their minimum to their maximum, which are returned.
fn shades(values: &[f64], kind: PackedKind) -> (Vec<u8>, Option<(f64, f64)>) {
    // Signed bytes up to a hundred are ROS occupancies, also in Foxglove's grids; 255 is the unsigned form of unknown.
    let is_occupancy = match kind {
        PackedKind::I8 => values.iter().all(|&value| value <= 100.0),
        PackedKind::U8 => values.iter().all(|&value| value <= 100.0 || value >= 255.0),
        _ => false,
    };
    let known = || values.iter().copied().filter(|value| value.is_finite());
    let (least, most) = known().fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    );
    let shade = |&value: &f64| {
        if !value.is_finite() || (is_occupancy && !(0.0..=100.0).contains(&value)) {
            UNKNOWN
        } else if is_occupancy {
            value as u8
        } else {
            ((value - least) / (most - least).max(f64::MIN_POSITIVE) * 100.0) as u8
        }
    };
    let range = (!is_occupancy && least <= most).then_some((least, most));
    (values.iter().map(shade).collect(), range)
}

fn thinned(
    (width, height): (usize, usize),
    cells: &[u8],
    resolution: f64,
    origin: Option<[f64; 7]>,
) -> Shown {
    let thin = width.max(height).div_ceil(MOST_CELLS).max(1);
    let (columns, rows) = (width.div_ceil(thin), height.div_ceil(thin));
    let mut body = Vec::with_capacity(columns * rows);
    for y in (0..height).step_by(thin) {
        body.extend(cells[y * width..(y + 1) * width].iter().step_by(thin));
    }
    Shown {
        data: None,
        head: json!({
            "width": columns, "height": rows, "resolution": resolution * thin as f64, "origin": origin,
        }),
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancies_stay_what_they_are_and_heights_are_scaled() {
        assert_eq!(
            shades(&[-1.0, 0.0, 50.0, 100.0], PackedKind::I8),
            (vec![255, 0, 50, 100], None)
        );
        assert_eq!(
            shades(&[255.0, 0.0, 100.0], PackedKind::U8),
            (vec![255, 0, 100], None)
        );
        assert_eq!(
            shades(&[2.0, f64::NAN, 4.0, 3.0], PackedKind::F32),
            (vec![0, 255, 100, 50], Some((2.0, 4.0)))
        );
        assert_eq!(
            shades(&[7.0, 7.0], PackedKind::F64),
            (vec![0, 0], Some((7.0, 7.0)))
        );
        assert_eq!(shades(&[f64::NAN], PackedKind::F64), (vec![255], None));
    }

    #[test]
    fn an_update_changes_its_rectangle_and_nothing_beside_or_outside_of_the_map() {
        let patch = |x, y, width, cells: &[u8]| Patch {
            x,
            y,
            width,
            cells: cells.to_vec(),
        };
        let mut cells = vec![0; 12];
        patch(1, 1, 2, &[1, 2, 3, 4]).apply(&mut cells, 4);
        assert_eq!(cells, [0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0]);
        // Partly, and wholly, outside.
        patch(3, 2, 2, &[7, 8, 9, 9]).apply(&mut cells, 4);
        patch(4, 0, 1, &[5]).apply(&mut cells, 4);
        patch(usize::MAX, usize::MAX, 1, &[5]).apply(&mut cells, 4);
        patch(0, 9, 1, &[5]).apply(&mut cells, 4);
        assert_eq!(cells, [0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 7]);
        assert_eq!(base_of("/map_updates"), Some("/map"));
        assert_eq!(
            base_of("/local_costmap/costmap_updates"),
            Some("/local_costmap/costmap")
        );
        assert_eq!(base_of("/map"), None);
    }

    #[test]
    fn costs_keep_what_touches_and_what_is_an_obstacle_apart() {
        let found = [0, 1, 128, 252, 253, 254, 255].map(occupancy_of);
        assert_eq!(found, [0, 1, 50, 98, 99, 100, 255]);
    }

    #[test]
    fn a_large_map_is_thinned_out() {
        let shown = thinned((5000, 10), &vec![7; 50_000], 0.1, None);
        assert_eq!(
            (&shown.head["width"], &shown.head["height"]),
            (&1667.into(), &4.into())
        );
        assert_eq!(shown.body.len(), 1667 * 4);
    }
}
