//! Maps of cells.

use super::Shown;
use asof_decode::{PackedField, PackedKind, Record};

/// More cells than this along a side are thinned out.
const MOST_CELLS: usize = 2048;

/// A cell of which nothing is known.
const UNKNOWN: u8 = 255;

/// The cells of an occupancy grid, or of Foxglove's grid, row by row from the origin, a byte each: 0 free to 100 occupied, 255 unknown.
pub(super) fn show(record: &Record) -> Result<Shown, String> {
    if record.number("cell_stride").is_some() {
        return packed(record);
    }
    let number = |name: &str| {
        record
            .number(name)
            .ok_or_else(|| format!("it has no field '{name}'"))
    };
    let (width, height) = (number("width")? as usize, number("height")? as usize);
    let resolution = number("resolution")?;
    let cells = record.bytes("data").ok_or("it has no field 'data'")?;
    if width.checked_mul(height) != Some(cells.len()) {
        return Err(format!(
            "a map of {width} by {height} cells does not have {}",
            cells.len()
        ));
    }
    let size = (width, height);
    Ok(thinned(size, &cells, resolution, record.pose()))
}

/// Foxglove's grid: cells of any packed fields, the first of which is shown.
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
    let all = PackedField::all_of(record)?;
    let field = all.first().ok_or("its cells have no fields")?;
    let rows = data.chunks_exact(row);
    let height = rows.len();
    let values: Vec<f64> = rows
        .flat_map(|row| row.chunks_exact(cell).take(width))
        .map(|cell| field.value(cell, false))
        .collect();
    let cells = shades(&values, field.kind);
    let resolution = record.number("cell_size[0]").unwrap_or(1.0);
    Ok(thinned((width, height), &cells, resolution, record.pose()))
}

/// Occupancies as they are; anything else from its least to its greatest.
fn shades(values: &[f64], kind: PackedKind) -> Vec<u8> {
    // Signed bytes up to a hundred are what ROS has, also in Foxglove's words; 255 is its unknown without a sign.
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
    values.iter().map(shade).collect()
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
        head: serde_json::json!({
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
            [255, 0, 50, 100]
        );
        assert_eq!(shades(&[255.0, 0.0, 100.0], PackedKind::U8), [255, 0, 100]);
        assert_eq!(
            shades(&[2.0, f64::NAN, 4.0, 3.0], PackedKind::F32),
            [0, 255, 100, 50]
        );
        assert_eq!(shades(&[7.0, 7.0], PackedKind::F64), [0, 0]);
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
