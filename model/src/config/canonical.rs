//! The bytes of a table, as they are hashed into a run's id.
//!
//! They are defined here and not by a serialiser, whose next version might write others. Floats are
//! hashed by their bits, so 0.1 and 0.10 are one run.

use intellect_table::{Field, Keys};

/// Appends every key in the order of the table; a key that does not apply is zero or empty.
pub(super) fn append(table: &impl Keys, bytes: &mut Vec<u8>) {
    for (_, field) in table.row() {
        append_field(&field, bytes);
    }
}

/// Integers, float bits and numbers of names as u64 little endian, a text as u32 length and bytes, a list as u64
/// length and values, a value that may be absent as u64 0, or 1 and itself, a switch as u64 0 or 1.
fn append_field(field: &Field, bytes: &mut Vec<u8>) {
    match field {
        Field::Integer(number) | Field::Name(_, number) => bytes.extend(number.to_le_bytes()),
        Field::Float(number) => bytes.extend(number.to_bits().to_le_bytes()),
        Field::Switch(on) => bytes.extend(u64::from(*on).to_le_bytes()),
        Field::Bytes(raw, _) => bytes.extend(raw),
        Field::Text(text) => {
            // Every text is bounded far below.
            bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        Field::List(items) => {
            bytes.extend((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| append_field(item, bytes));
        }
        Field::Option(value) => {
            bytes.extend(u64::from(value.is_some()).to_le_bytes());
            if let Some(value) = value {
                append_field(value, bytes);
            }
        }
    }
}
