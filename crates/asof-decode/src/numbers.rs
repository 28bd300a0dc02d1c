//! Arrays of any numeric type as floating point.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, TimestampNanosecondType};
use arrow_array::{Array, downcast_integer};
use arrow_schema::DataType;

/// Whether [`numbers`] supports an array: it has numbers, booleans or times.
pub fn is_number(kind: &DataType) -> bool {
    kind.is_numeric() || matches!(kind, DataType::Boolean | DataType::Timestamp(..))
}

/// The number at an index of an array; `None` where there is none.
pub fn number_at(array: &dyn Array, place: usize) -> Option<f64> {
    (place < array.len() && array.is_valid(place))
        .then(|| numbers(&*array.slice(place, 1)).first().copied())?
}

/// All numbers of an array as floating point, NaN where null: a boolean is 0 or 1, a time its seconds. Empty for other
/// arrays.
pub fn numbers(array: &dyn Array) -> Vec<f64> {
    macro_rules! all {
        ($kind:ty) => {
            array
                .as_primitive::<$kind>()
                .iter()
                .map(|value| value.map_or(f64::NAN, |value| value as f64))
                .collect()
        };
    }
    downcast_integer! {
        array.data_type() => (all),
        DataType::Float64 => all!(Float64Type),
        DataType::Float32 => all!(Float32Type),
        DataType::Boolean => array
            .as_boolean()
            .iter()
            .map(|value| value.map_or(f64::NAN, f64::from))
            .collect(),
        DataType::Timestamp(..) => array
            .as_primitive::<TimestampNanosecondType>()
            .iter()
            .map(|value| value.map_or(f64::NAN, |nanos| nanos as f64 * 1e-9))
            .collect(),
        _ => Vec::new(),
    }
}
