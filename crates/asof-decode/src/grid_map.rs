//! Multi-layer maps of `grid_map`.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;

use crate::record::Record;

/// One layer of a multi-layer map, such as heights or slopes.
///
/// `grid_map` stores its cells from the corner with the greatest x and y, column by column, in a circular buffer. Here
/// they are rows along x, from the corner with the least x and y, as in occupancy grids.
#[derive(Debug, Clone, PartialEq)]
pub struct GridLayer {
    /// Its name.
    pub name: String,
    /// Cells along x.
    pub width: usize,
    /// Cells along y.
    pub height: usize,
    /// The side length of a cell.
    pub resolution: f64,
    /// The value of each cell; NaN where it is unknown.
    pub values: Vec<f64>,
}

/// Why a layer cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridLayerError {
    /// There is no layer of this name.
    #[error("it has no layer '{name}', only {known}")]
    NoSuchLayer {
        /// The requested name.
        name: String,
        /// The layers of the map, separated by commas.
        known: String,
    },
    /// The map has no layers.
    #[error("it has no layers")]
    NoLayers,
    /// The cells do not have a size.
    #[error("its cells do not have a size")]
    NoResolution,
    /// The number of values does not match the size.
    #[error("a layer of {rows} by {columns} cells has {found} values")]
    Incomplete {
        /// Cells along x.
        rows: usize,
        /// Cells along y.
        columns: usize,
        /// The number of values.
        found: usize,
    },
}

impl GridLayer {
    /// The names of a map's layers, the basic layers first.
    pub fn names(record: &Record) -> Vec<String> {
        let all = texts(record, "layers");
        let mut names: Vec<String> = texts(record, "basic_layers");
        names.retain(|name| all.contains(name));
        let others: Vec<String> = all
            .into_iter()
            .filter(|name| !names.contains(name))
            .collect();
        names.extend(others);
        names
    }

    /// Reads a layer of a map; the first of [`names`](Self::names) where `name` is `None`.
    ///
    /// # Errors
    /// When there is no such layer, or it is incomplete; the text is half a sentence.
    pub fn of(record: &Record, name: Option<&str>) -> Result<Self, GridLayerError> {
        let known = Self::names(record);
        let name = match name {
            Some(name) => name.to_owned(),
            None => known.first().ok_or(GridLayerError::NoLayers)?.clone(),
        };
        let all = texts(record, "layers");
        let place = all.iter().position(|own| *own == name);
        let place = place.ok_or_else(|| GridLayerError::NoSuchLayer {
            name: name.clone(),
            known: known.join(", "),
        })?;
        let number = |path: &str| record.number(path).unwrap_or(0.0);
        let resolution = number("resolution");
        if !resolution.is_finite() || resolution <= 0.0 {
            return Err(GridLayerError::NoResolution);
        }
        let size = |dimension| number(&format!("data[{place}].layout.dim[{dimension}].size"));
        let label = record.text(&format!("data[{place}].layout.dim[0].label"));
        // Column-major unless labelled otherwise, as in the library.
        let is_by_row = label.as_deref() == Some("row_index");
        let (outer, inner) = (size(0) as usize, size(1) as usize);
        let (rows, columns) = if is_by_row {
            (outer, inner)
        } else {
            (inner, outer)
        };
        let stored = record.list(&format!("data[{place}].data"));
        let stored = stored.unwrap_or_default();
        if stored.is_empty() || rows.checked_mul(columns) != Some(stored.len()) {
            return Err(GridLayerError::Incomplete {
                rows,
                columns,
                found: stored.len(),
            });
        }
        let starts = (
            number("outer_start_index") as usize % rows,
            number("inner_start_index") as usize % columns,
        );
        let at = |x: usize, y: usize| {
            let row = (rows - 1 - x + starts.0) % rows;
            let column = (columns - 1 - y + starts.1) % columns;
            stored[if is_by_row {
                row * columns + column
            } else {
                column * rows + row
            }]
        };
        let values = (0..columns).flat_map(|y| (0..rows).map(move |x| (x, y)));
        let values = values.map(|(x, y)| at(x, y)).collect();
        Ok(GridLayer {
            name,
            width: rows,
            height: columns,
            resolution,
            values,
        })
    }
}

/// A list of strings.
fn texts(record: &Record, path: &str) -> Vec<String> {
    let Some(items) = record.items(path) else {
        return Vec::new();
    };
    let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
    match items.data_type() {
        DataType::Utf8 => items.as_string::<i32>().iter().map(owned).collect(),
        DataType::Utf8View => items.as_string_view().iter().map(owned).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asof_core::{Channel, Message, Schema, Stamp};

    use super::*;
    use crate::Decoders;

    /// A map of 3 cells along x and 2 along y with the layers `slope` and `height`, of which the second is basic.
    fn map(height: &str, resolution: f64, starts: (u16, u16), label: &str) -> Record {
        let (outer, inner) = if label == "row_index" { (3, 2) } else { (2, 3) };
        let layer = |data: &str| {
            format!(
                r#"{{"layout":{{"dim":[{{"label":"{label}","size":{outer},"stride":6}},{{"label":"other","size":{inner},"stride":{inner}}}],"data_offset":0}},"data":[{data}]}}"#
            )
        };
        let text = format!(
            r#"{{"header":{{"frame_id":"map"}},"info":{{"resolution":{resolution},"length_x":1.5,"length_y":1.0,"pose":{{"position":{{"x":1.0,"y":2.0,"z":0.0}},"orientation":{{"x":0.0,"y":0.0,"z":0.0,"w":1.0}}}}}},"layers":["slope","height"],"basic_layers":["height"],"data":[{},{}],"outer_start_index":{},"inner_start_index":{}}}"#,
            layer("0,0,0,0,0,0"),
            layer(height),
            starts.0,
            starts.1
        );
        let schema = Schema {
            name: "grid_map_msgs/GridMap".to_owned(),
            encoding: "jsonschema".to_owned(),
            data: "{}".into(),
        };
        let channel = Channel {
            topic: "/map".to_owned(),
            message_encoding: "json".to_owned(),
            schema: Some(Arc::new(schema)),
            ..Channel::default()
        };
        let at = Stamp::from_nanos(1);
        let message = Message {
            channel: Arc::new(channel),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: text.into_bytes().into(),
        };
        Decoders::default().meaning(&message).expect("a map")
    }

    #[test]
    fn cells_come_in_rows_along_x_from_the_least_corner() {
        // Row 0 has the greatest x, column 0 the greatest y; a column after the other.
        let record = map("1,2,3,4,5,6", 0.5, (0, 0), "column_index");
        let layer = GridLayer::of(&record, None).expect("heights");
        assert_eq!(
            (layer.name.as_str(), layer.width, layer.height),
            ("height", 3, 2)
        );
        assert_eq!(layer.values, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        // The same map by rows.
        let record = map("1,4,2,5,3,6", 0.5, (0, 0), "row_index");
        let layer = GridLayer::of(&record, None).expect("heights");
        assert_eq!(layer.values, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    }

    #[test]
    fn a_ring_that_starts_elsewhere_is_the_same_map() {
        // Row 1 and column 1 of what is stored are the first.
        let record = map("6,4,5,3,1,2", 0.5, (1, 1), "column_index");
        let layer = GridLayer::of(&record, None).expect("heights");
        assert_eq!(layer.values, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    }

    #[test]
    fn basic_layers_come_first_and_others_by_their_names() {
        let record = map("1,2,3,4,5,6", 0.5, (0, 0), "column_index");
        assert_eq!(GridLayer::names(&record), ["height", "slope"]);
        let slope = GridLayer::of(&record, Some("slope")).expect("slopes");
        assert_eq!(slope.values, [0.0; 6]);
        let none = GridLayer::of(&record, Some("colour")).expect_err("no such layer");
        assert_eq!(
            none.to_string(),
            "it has no layer 'colour', only height, slope"
        );
    }

    #[test]
    fn what_does_not_fill_the_map_is_refused() {
        let few = map("1,2,3", 0.5, (0, 0), "column_index");
        let few = GridLayer::of(&few, None).expect_err("three of six");
        assert_eq!(few.to_string(), "a layer of 3 by 2 cells has 3 values");
        let flat = map("1,2,3,4,5,6", 0.0, (0, 0), "column_index");
        assert_eq!(
            GridLayer::of(&flat, None),
            Err(GridLayerError::NoResolution)
        );
        // Starts beyond the ring are taken into it.
        let far = map("1,2,3,4,5,6", 0.5, (65535, 65534), "column_index");
        assert!(GridLayer::of(&far, None).is_ok());
    }
}
