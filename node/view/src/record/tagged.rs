//! An enum whose variant is named by a key of the same object, read from the line itself.
//!
//! serde's own form of this (`tag`) first copies the whole object into memory, since the key may come last. Here the
//! name is known already, so the line is read a second time, straight into the variant. `bench view` times it.
//!
//! serde asks an enum in two steps: for the name of the variant, which `Body` has, and for its
//! content, for which `Body` starts a parser at the beginning of the line. Keys that the variant
//! does not have, `event` among them, are skipped there.

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, EnumAccess, IntoDeserializer as _, VariantAccess, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Error, de::SliceRead};

/// A line that is an object, and the name of its variant.
#[derive(Clone, Copy)]
pub(super) struct Body<'a> {
    /// The value of the key `event`.
    pub(super) event: &'a str,
    /// The whole line, which is an object in JSON.
    pub(super) line: &'a [u8],
}

impl<'a> Body<'a> {
    /// A parser at the beginning of the line.
    fn read(self) -> serde_json::Deserializer<SliceRead<'a>> {
        serde_json::Deserializer::from_slice(self.line)
    }
}

impl<'de> Deserializer<'de> for Body<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> EnumAccess<'de> for Body<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let name: de::value::StrDeserializer<'_, Error> = self.event.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Body<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(&mut self.read())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("an event is an object"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.read().deserialize_struct("Event", fields, visitor)
    }
}
