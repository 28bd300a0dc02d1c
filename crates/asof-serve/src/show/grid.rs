//! Maps of cells.

use super::Shown;
use crate::record::Record;

/// More cells than this along a side are thinned out.
const MOST_CELLS: usize = 2048;

/// The cells of an occupancy grid, row by row from the origin, a byte each: 0 free to 100 occupied, 255 unknown.
pub(super) fn show(record: &Record) -> Result<Shown, String> {
    let number = |name: &str| {
        record
            .number(&format!("info.{name}"))
            .ok_or_else(|| format!("it has no field 'info.{name}'"))
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
    let thin = width.max(height).div_ceil(MOST_CELLS).max(1);
    let (columns, rows) = (width.div_ceil(thin), height.div_ceil(thin));
    let mut body = Vec::with_capacity(columns * rows);
    for y in (0..height).step_by(thin) {
        body.extend(cells[y * width..(y + 1) * width].iter().step_by(thin));
    }
    Ok(Shown {
        data: None,
        head: serde_json::json!({
            "width": columns, "height": rows, "resolution": resolution * thin as f64,
            "origin": record.pose("info.origin"),
        }),
        body,
    })
}
