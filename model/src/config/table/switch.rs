//! A switch: a key that is `true`, or absent.

use super::super::error::WorkError;
use super::{Entry, Field, Value};

/// A switch that is off where its key is absent, so that there is one way to write each setting.
impl Value for bool {
    type Bounds = ();
    const NONE: Self = false;

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, WorkError> {
        let on = entry.value.as_bool().filter(|on| *on);
        on.ok_or_else(|| entry.wrong("true, or the key be left out"))
    }

    fn field(&self) -> Option<Field> {
        self.then_some(Field::On)
    }

    fn told((): &()) -> String {
        "true".to_owned()
    }
}
