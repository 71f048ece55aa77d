//! Reads a pickle that makes a dict of tensors, and nothing else.
//!
//! A pickle is a program for a machine with a stack, and Python runs whatever it names. Here
//! nothing is run: the machine knows the few instructions that such a dict takes, a name stands for
//! one of a closed list, and what it would call is done by this file. Everything else is refused by
//! name. Instructions are those of protocol 2, as `pickletools` describes them.
//!
//! Lists, dicts and texts are kept beside the stack, and values refer to them by number. So no
//! value holds another one, however deep the file nests them, and memory is bounded by the file's
//! length.

use std::collections::BTreeMap;

use safetensors::Dtype;

use super::PthError;

/// A tensor as the pickle describes it; its numbers are in another member of the archive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PickledTensor {
    /// The name of the member, behind `data/`.
    pub(super) key: String,
    /// What the numbers are: f32, bf16 or f16.
    pub(super) dtype: Dtype,
    /// How many numbers the member has.
    pub(super) held: u64,
    /// Index of the tensor's first number in the member.
    pub(super) first: u64,
    /// The sizes of its dimensions, none of them 0.
    pub(super) shape: Vec<usize>,
    /// Whether the numbers stand in the order of the shape, without gaps.
    pub(super) in_order: bool,
}

/// A value on the stack; the numbers are places in lists of the machine.
#[derive(Clone, Copy, Debug)]
enum Pickled {
    /// The value None, as in place of something optional.
    Nothing,
    /// True or False, on which nothing here depends.
    Truth,
    /// A whole number, as a size or an offset.
    Number(i64),
    /// A text, as a name of a tensor.
    Text(usize),
    /// A tuple, as the arguments of a call.
    Tuple(usize),
    /// A dict, be it an ordered one or not.
    Dict(usize),
    /// A name of Python, which is never called as such.
    Name(Global),
    /// The numbers of one or several tensors.
    Storage(usize),
    /// A tensor, a part of a storage.
    Tensor(usize),
}

/// What of Python and PyTorch a pickle may name.
#[derive(Clone, Copy, Debug)]
enum Global {
    /// A dict that remembers the order of its keys.
    OrderedDict,
    /// The function by which a pickle makes a tensor.
    RebuildTensor,
    /// Numbers of this type, in a member of their own.
    Storage(Dtype),
}

/// The numbers of one or several tensors.
struct Storage<'a> {
    /// The name of its member, behind `data/`.
    key: &'a str,
    /// What the numbers are: f32, bf16 or f16.
    dtype: Dtype,
    /// How many it has, as the pickle says.
    held: u64,
}

/// The machine: what is left of the program, its stack, and what values refer to.
#[derive(Default)]
struct Machine<'a> {
    /// The part of the program that is left.
    rest: &'a [u8],
    /// The values, the newest last.
    stack: Vec<Pickled>,
    /// Heights of the stack at which a list of values began.
    marks: Vec<usize>,
    /// Values under the numbers that the program gave them.
    memo: BTreeMap<u32, Pickled>,
    /// The texts so far, which are parts of the program and not copies.
    texts: Vec<&'a str>,
    /// The tuples so far, each complete when it is made.
    tuples: Vec<Vec<Pickled>>,
    /// The dicts so far: pairs of key and value in their order.
    dicts: Vec<Vec<(Pickled, Pickled)>>,
    /// The storages that persistent ids have named so far.
    storages: Vec<Storage<'a>>,
    /// The tensors that were rebuilt so far, as parts of storages.
    tensors: Vec<PickledTensor>,
}

/// The tensors of the dict that `bytes` make, in its order.
pub(super) fn tensors(bytes: &[u8]) -> Result<Vec<(String, PickledTensor)>, PthError> {
    let mut machine = Machine { rest: bytes, ..Machine::default() };
    while machine.step()? {}
    machine.finish()
}

impl<'a> Machine<'a> {
    /// Takes one instruction; `false` behind the last one. By the names of `pickletools`:
    ///
    /// ```text
    /// 0x80 PROTO      ( MARK         N NONE           0x88, 0x89 NEWTRUE, NEWFALSE
    /// K BININT1       M BININT2      J BININT         0x8a LONG1
    /// X BINUNICODE    c GLOBAL       ) EMPTY_TUPLE    0x85 to 0x87 TUPLE1 to TUPLE3
    /// t TUPLE         } EMPTY_DICT   s SETITEM        u SETITEMS
    /// q BINPUT        r LONG_BINPUT  h BINGET         j LONG_BINGET
    /// Q BINPERSID     R REDUCE       b BUILD          . STOP
    /// ```
    fn step(&mut self) -> Result<bool, PthError> {
        let [code] = self.array()?;
        match code {
            STOP => return Ok(false),
            0x80 => match self.array()? {
                [2] => {}
                [other] => return Err(PthError::Foreign(format!("a pickle of protocol {other}"))),
            },
            b'(' => {
                self.marks.push(self.stack.len());
                within(self.marks.len())?;
            }
            b'N' => self.push(Pickled::Nothing)?,
            0x88 | 0x89 => self.push(Pickled::Truth)?,
            b'K' => self.number(|bytes| u8::from_le_bytes(bytes).into())?,
            b'M' => self.number(|bytes| u16::from_le_bytes(bytes).into())?,
            b'J' => self.number(|bytes| i32::from_le_bytes(bytes).into())?,
            0x8a => self.long()?,
            b'X' => self.text()?,
            b'c' => self.global()?,
            b')' => self.tuple(0)?,
            0x85..=0x87 => self.tuple(usize::from(code - 0x84))?,
            b't' => {
                let from = self.mark()?;
                self.tuple(self.stack.len() - from)?;
            }
            b'}' => self.dict()?,
            b's' => {
                let from = self.stack.len().checked_sub(2).ok_or(SHORT)?;
                self.set_items(from)?;
            }
            b'u' => {
                let from = self.mark()?;
                self.set_items(from)?;
            }
            b'q' | b'r' | b'h' | b'j' => self.remember(code)?,
            b'Q' => self.storage()?,
            b'R' => self.call()?,
            b'b' => self.build()?,
            other => return Err(PthError::Foreign(format!("the instruction {other:#04x}"))),
        }
        Ok(true)
    }

    /// The dict on top, if all its values are tensors.
    fn finish(mut self) -> Result<Vec<(String, PickledTensor)>, PthError> {
        let items = match self.pop()? {
            Pickled::Dict(dict) => std::mem::take(&mut self.dicts[dict]),
            other => return Err(PthError::Foreign(format!("{} alone", self.words(other)))),
        };
        let mut found = Vec::new();
        within(items.len())?;
        for item in items {
            match item {
                (Pickled::Text(name), Pickled::Tensor(tensor)) => {
                    found.push((self.texts[name].to_owned(), self.tensors[tensor].clone()));
                }
                (Pickled::Text(name), other) => {
                    let (name, words) = (self.texts[name], self.words(other));
                    return Err(PthError::Foreign(format!("{words} under {name:?}")));
                }
                (other, _) => {
                    return Err(PthError::Foreign(format!("{} as a key", self.words(other))));
                }
            }
        }
        Ok(found)
    }

    /// What a value is, for a person.
    fn words(&self, value: Pickled) -> String {
        match value {
            Pickled::Nothing => "None".to_owned(),
            Pickled::Truth => "a truth value".to_owned(),
            Pickled::Number(number) => format!("the number {number}"),
            Pickled::Text(text) => format!("the text {:?}", self.texts[text]),
            Pickled::Tuple(_) => "a tuple".to_owned(),
            Pickled::Dict(_) => "a dict".to_owned(),
            Pickled::Name(global) => format!("the name of {global:?}"),
            Pickled::Storage(_) => "a storage".to_owned(),
            Pickled::Tensor(_) => "a tensor".to_owned(),
        }
    }

    /// Takes that many bytes of the program.
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], PthError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The same as an array, whose length is known.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], PthError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Puts a value on the stack, which has a bound.
    fn push(&mut self, value: Pickled) -> Result<(), PthError> {
        self.stack.push(value);
        within(self.stack.len())
    }

    /// Takes the value on top, but none from under a mark.
    fn pop(&mut self) -> Result<Pickled, PthError> {
        // What lies under a mark belongs to whom the mark does not.
        if self.marks.last().is_some_and(|mark| *mark >= self.stack.len()) {
            return Err(SHORT);
        }
        self.stack.pop().ok_or(SHORT)
    }

    /// Takes the last mark: where on the stack the values above it begin.
    fn mark(&mut self) -> Result<usize, PthError> {
        self.marks.pop().filter(|mark| *mark <= self.stack.len()).ok_or(SHORT)
    }

    /// Pushes a whole number that takes N bytes of the program.
    fn number<const N: usize>(&mut self, read: fn([u8; N]) -> i64) -> Result<(), PthError> {
        let number = read(self.array()?);
        self.push(Pickled::Number(number))
    }

    /// A whole number of up to eight bytes, with a sign.
    fn long(&mut self) -> Result<(), PthError> {
        let [length] = self.array()?;
        let bytes = self.take(length.into())?;
        if bytes.len() > 8 {
            return Err(PthError::Foreign("a number of more than 64 bits".to_owned()));
        }
        let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { u8::MAX } else { 0 };
        let mut word = [sign; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        self.push(Pickled::Number(i64::from_le_bytes(word)))
    }

    /// Takes a text with its length before it.
    fn text(&mut self) -> Result<(), PthError> {
        let length = u32::from_le_bytes(self.array()?);
        let bytes = self.take(usize::try_from(length).map_err(|_| SHORT)?)?;
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(PthError::Foreign(format!("a text of {length} bytes")));
        }
        self.texts.push(str::from_utf8(bytes).map_err(|_| NO_TEXT)?);
        self.push(Pickled::Text(self.texts.len() - 1))
    }

    /// A name of Python: module and object, each on a line of its own.
    fn global(&mut self) -> Result<(), PthError> {
        let mut line = || {
            let end = self.rest.iter().take(TEXT_BYTES_MAX).position(|byte| *byte == b'\n');
            let line = self.take(end.ok_or(NO_TEXT)? + 1)?;
            str::from_utf8(&line[..line.len() - 1]).map_err(|_| NO_TEXT)
        };
        let (module, object) = (line()?, line()?);
        let global = match (module, object) {
            ("collections", "OrderedDict") => Global::OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2") => Global::RebuildTensor,
            ("torch", "BFloat16Storage") => Global::Storage(Dtype::BF16),
            ("torch", "HalfStorage") => Global::Storage(Dtype::F16),
            ("torch", "FloatStorage") => Global::Storage(Dtype::F32),
            _ => return Err(PthError::Foreign(format!("{module}.{object}"))),
        };
        self.push(Pickled::Name(global))
    }

    /// Makes a tuple of the last values.
    fn tuple(&mut self, count: usize) -> Result<(), PthError> {
        let from = self.stack.len().checked_sub(count).ok_or(SHORT)?;
        if self.marks.last().is_some_and(|mark| *mark > from) {
            return Err(SHORT);
        }
        self.tuples.push(self.stack.split_off(from));
        self.push(Pickled::Tuple(self.tuples.len() - 1))
    }

    /// Makes an empty dict, and pushes it.
    fn dict(&mut self) -> Result<(), PthError> {
        self.dicts.push(Vec::new());
        self.push(Pickled::Dict(self.dicts.len() - 1))
    }

    /// Moves pairs of a key and a value, from this place of the stack on, to the dict before them.
    fn set_items(&mut self, from: usize) -> Result<(), PthError> {
        let items = self.stack.split_off(from);
        let (pairs, []) = items.as_chunks::<2>() else { return Err(SHORT) };
        let Pickled::Dict(dict) = self.pop()? else {
            return Err(PthError::Foreign("items of something else than a dict".to_owned()));
        };
        self.dicts[dict].extend(pairs.iter().map(|[key, value]| (*key, *value)));
        self.push(Pickled::Dict(dict))
    }

    /// Stores the value on top under a number, or puts the one with a number on top.
    fn remember(&mut self, code: u8) -> Result<(), PthError> {
        let number = match code {
            b'q' | b'h' => {
                let [number] = self.array()?;
                u32::from(number)
            }
            _ => u32::from_le_bytes(self.array()?),
        };
        if code == b'h' || code == b'j' {
            let value = self.memo.get(&number).copied().ok_or(SHORT)?;
            return self.push(value);
        }
        self.memo.insert(number, self.stack.last().copied().ok_or(SHORT)?);
        Ok(())
    }

    /// A storage by its place in the archive: ("storage", its type, its key, a device, its length).
    fn storage(&mut self) -> Result<(), PthError> {
        let foreign = || PthError::Foreign("a reference that is not a storage".to_owned());
        let Pickled::Tuple(tuple) = self.pop()? else { return Err(foreign()) };
        let [
            Pickled::Text(kind),
            Pickled::Name(Global::Storage(dtype)),
            Pickled::Text(key),
            Pickled::Text(_),
            Pickled::Number(held),
        ] = self.tuples[tuple][..]
        else {
            return Err(foreign());
        };
        let (true, Ok(held)) = (self.texts[kind] == "storage", u64::try_from(held)) else {
            return Err(foreign());
        };
        self.storages.push(Storage { key: self.texts[key], dtype, held });
        self.push(Pickled::Storage(self.storages.len() - 1))
    }

    /// Does what the named object would do with its arguments.
    fn call(&mut self) -> Result<(), PthError> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        match (callee, arguments) {
            (Pickled::Name(Global::OrderedDict), Pickled::Tuple(tuple))
                if self.tuples[tuple].is_empty() =>
            {
                self.dict()
            }
            (Pickled::Name(Global::RebuildTensor), Pickled::Tuple(tuple)) => {
                let tensor = self.tensor(tuple)?;
                self.tensors.push(tensor);
                within(self.tensors.len())?;
                self.push(Pickled::Tensor(self.tensors.len() - 1))
            }
            (callee, _) => Err(PthError::Foreign(format!("a call of {}", self.words(callee)))),
        }
    }

    /// A tensor of (storage, first number, sizes, strides, needs a gradient, hooks, perhaps a
    /// dict). It lies inside its storage, and has at least one number.
    fn tensor(&self, tuple: usize) -> Result<PickledTensor, PthError> {
        let foreign = || PthError::Foreign("a tensor of another form".to_owned());
        let arguments = &self.tuples[tuple][..];
        let [
            Pickled::Storage(storage),
            Pickled::Number(first),
            Pickled::Tuple(sizes),
            Pickled::Tuple(strides),
            Pickled::Truth,
            Pickled::Dict(hooks),
            more @ ..,
        ] = arguments
        else {
            return Err(foreign());
        };
        if !self.dicts[*hooks].is_empty() || !matches!(more, [] | [Pickled::Dict(_)]) {
            return Err(PthError::Foreign("a tensor with hooks".to_owned()));
        }
        let numbers = |tuple: &usize| -> Option<Vec<u64>> {
            let numbers = self.tuples[*tuple].iter().map(|value| {
                let Pickled::Number(number) = value else { return None };
                u64::try_from(*number).ok()
            });
            numbers.collect()
        };
        let (sizes, strides) = numbers(sizes).zip(numbers(strides)).ok_or_else(foreign)?;
        if sizes.len() != strides.len() || sizes.len() > DIMENSIONS_MAX {
            return Err(foreign());
        }
        let Storage { key, dtype, held } = &self.storages[*storage];
        let first = u64::try_from(*first).map_err(|_| foreign())?;
        // The file may say any sizes, so each product and sum is checked. `first` + `count` is the
        // end of a tensor without gaps; others are not `in_order`.
        let count = sizes.iter().try_fold(1_u64, |all, size| all.checked_mul(*size));
        let end = count.and_then(|count| first.checked_add(count));
        if count == Some(0) || end.is_none_or(|end| end > *held) {
            return Err(PthError::Damaged("a tensor lies outside of its storage"));
        }
        let shape = sizes.iter().map(|size| usize::try_from(*size).ok());
        Ok(PickledTensor {
            key: (*key).to_owned(),
            dtype: *dtype,
            held: *held,
            first,
            shape: shape.collect::<Option<_>>().ok_or_else(foreign)?,
            in_order: is_in_order(&sizes, &strides),
        })
    }

    /// Sets attributes of a dict. A state dict has the versions of its modules there, which no number
    /// depends on.
    fn build(&mut self) -> Result<(), PthError> {
        let (attributes, object) = (self.pop()?, self.pop()?);
        match (object, attributes) {
            (Pickled::Dict(dict), Pickled::Dict(_)) => self.push(Pickled::Dict(dict)),
            (object, _) => Err(PthError::Foreign(format!("attributes of {}", self.words(object)))),
        }
    }
}

/// Whether the last index runs fastest, and no number is left out. None of the sizes is 0, and their
/// product fits.
fn is_in_order(sizes: &[u64], strides: &[u64]) -> bool {
    let mut inner = 1;
    sizes.iter().zip(strides).rev().all(|(size, stride)| {
        let fits = *size == 1 || *stride == inner;
        inner *= size;
        fits
    })
}

/// Refuses more values, at one time or of one kind, than any state dict needs.
fn within(values: usize) -> Result<(), PthError> {
    if values > VALUES_MAX {
        return Err(PthError::Foreign(format!("more than {VALUES_MAX} values")));
    }
    Ok(())
}

/// The instruction behind which a pickle ends.
const STOP: u8 = b'.';
/// The error of a program that pops more than the stack has, or ends too early.
const SHORT: PthError = PthError::Damaged("its pickle takes what is not there");
/// The error of a text that no program of PyTorch writes.
const NO_TEXT: PthError = PthError::Damaged("a text in its pickle is cut off or not UTF-8");
/// Far more than the longest name of a tensor.
const TEXT_BYTES_MAX: usize = 256;
/// PyTorch adds the items of a dict a thousand at a time, so that two thousand values are on the stack;
/// the largest models have a few thousand tensors.
const VALUES_MAX: usize = 1 << 16;
/// More than any tensor of a model has.
const DIMENSIONS_MAX: usize = 8;
