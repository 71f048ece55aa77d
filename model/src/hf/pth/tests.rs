//! Tests of finding the tensors of a `.pth` file, and files for other tests.

use std::fs;
use std::os::unix::fs::FileExt as _;

use safetensors::Dtype;

use super::*;

/// A tensor to save: its name, the type of its numbers, its shape, and its bytes.
pub(in crate::hf) type Saving = (String, Dtype, Vec<usize>, Vec<u8>);

/// What Python's pickler writes of a state dict that PyTorch saves: two tensors, the second of which
/// begins in its storage at number 256, and the versions of the modules.
const GOLDEN: &[u8] = b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(X\n\x00\x00\x00emb.weight\
    q\x02ctorch._utils\n_rebuild_tensor_v2\nq\x03((X\x07\x00\x00\x00storageq\x04ctorch\n\
    BFloat16Storage\nq\x05X\x01\x00\x00\x000q\x06X\x03\x00\x00\x00cpuq\x07K\x06tq\x08QK\x00K\x03\
    K\x02\x86q\x09K\x02K\x01\x86q\n\x89h\x00)Rq\x0btq\x0cRq\x0dX\x17\x00\x00\x00blocks.0.att.\
    time_faaaaq\x0eh\x03((h\x04ctorch\nFloatStorage\nq\x0fX\x01\x00\x00\x001q\x10h\x07M,\x01tq\
    \x11QM\x00\x01K\x02K\x02\x86q\x12h\n\x89h\x00)Rq\x13tq\x14Rq\x15u}q\x16X\x09\x00\x00\x00\
    _metadataq\x17h\x00)Rq\x18X\x00\x00\x00\x00q\x19}q\x1aX\x07\x00\x00\x00versionq\x1bK\x01sssb.";

/// Whether an archive has the records of archives over 4 GiB, as PyTorch writes them always.
#[derive(Clone, Copy)]
pub(in crate::hf) enum Form {
    Small,
    Large,
}

/// A zip archive of these members, whose bytes begin at multiples of 64, as PyTorch has it.
pub(in crate::hf) fn archive(form: Form, members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::<u8>::new(), Vec::<u8>::new());
    let short = |number: usize| u16::try_from(number).unwrap().to_le_bytes();
    let word = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    for (name, bytes) in members {
        let at = out.len();
        let front = at + 30 + name.len() + 4;
        let padding = vec![b'Z'; front.next_multiple_of(64) - front];
        let sizes = [word(bytes.len()); 2].concat();
        out.extend(b"PK\x03\x04");
        out.extend([0; 14]);
        out.extend(&sizes);
        out.extend([short(name.len()), short(4 + padding.len())].concat());
        out.extend(name.as_bytes());
        out.extend(b"FB");
        out.extend(short(padding.len()));
        out.extend(padding);
        out.extend(bytes);
        directory.extend(b"PK\x01\x02");
        directory.extend([0; 16]);
        let numbers = [bytes.len(), bytes.len(), at].map(|number| (number as u64).to_le_bytes());
        let (sizes, at, extra) = match form {
            Form::Small => (sizes, word(at), Vec::new()),
            Form::Large => {
                let extra = [&b"FB\0\0\x01\0\x18\0"[..], &numbers.concat()].concat();
                (vec![0xff; 8], [0xff; 4], extra)
            }
        };
        directory.extend(sizes);
        directory.extend([short(name.len()), short(extra.len())].concat());
        directory.extend([0; 10]);
        directory.extend(at);
        directory.extend(name.as_bytes());
        directory.extend(extra);
    }
    let (begin, bytes, count) = (out.len(), directory.len(), members.len());
    out.extend(directory);
    if let Form::Large = form {
        let at = out.len() as u64;
        out.extend(b"PK\x06\x06");
        out.extend([0; 28]);
        out.extend([count, bytes, begin].map(|number| (number as u64).to_le_bytes()).concat());
        out.extend(b"PK\x06\x07");
        out.extend([0; 4]);
        out.extend(at.to_le_bytes());
        out.extend([0; 4]);
    }
    out.extend(b"PK\x05\x06");
    out.extend([0; 6]);
    match form {
        Form::Small => {
            out.extend(short(count));
            out.extend([word(bytes), word(begin)].concat());
        }
        Form::Large => out.extend([0xff; 10]),
    }
    out.extend([0; 2]);
    out
}

fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat()
}

fn tuple(numbers: &[usize]) -> Vec<u8> {
    let number =
        |number: &usize| [&b"J"[..], &i32::try_from(*number).unwrap().to_le_bytes()].concat();
    [&b"("[..], &numbers.iter().flat_map(number).collect::<Vec<_>>(), b"t"].concat()
}

/// The pickle of a state dict of these tensors, each with a storage of its own.
pub(in crate::hf) fn pickled(tensors: &[Saving]) -> Vec<u8> {
    let mut out = b"\x80\x02ccollections\nOrderedDict\n)R(".to_vec();
    for (key, (name, dtype, shape, _)) in tensors.iter().enumerate() {
        let kind = match dtype {
            Dtype::BF16 => "BFloat16",
            Dtype::F16 => "Half",
            _ => "Float",
        };
        let count: usize = shape.iter().product();
        let mut strides = vec![1; shape.len()];
        for index in (1..shape.len()).rev() {
            strides[index - 1] = strides[index] * shape[index];
        }
        out.extend(text(name));
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        out.extend(text("storage"));
        out.extend(format!("ctorch\n{kind}Storage\n").as_bytes());
        out.extend([text(&key.to_string()), text("cpu")].concat());
        out.extend(&tuple(&[count])[1..]);
        out.extend(b"QK\x00");
        out.extend([tuple(shape), tuple(&strides)].concat());
        out.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }
    out.extend(b"u.");
    out
}

/// The members of a `.pth` file with this pickle.
pub(in crate::hf) fn members(pickle: Vec<u8>, tensors: &[Saving]) -> Vec<(String, Vec<u8>)> {
    let mut members = vec![
        ("model/data.pkl".to_owned(), pickle),
        ("model/byteorder".to_owned(), b"little".to_vec()),
    ];
    for (key, (_, _, _, bytes)) in tensors.iter().enumerate() {
        members.push((format!("model/data/{key}"), bytes.clone()));
    }
    members.push(("model/version".to_owned(), b"3\n".to_vec()));
    members
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|part| part == from).expect("is there");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

/// The two tensors of the golden pickle.
fn golden() -> Vec<Saving> {
    let faaaa = "blocks.0.att.time_faaaa".to_owned();
    let (emb, numbers) = (vec![1; 12], (0..300).flat_map(|n| (n as f32).to_le_bytes()).collect());
    vec![
        ("emb.weight".to_owned(), Dtype::BF16, vec![3, 2], emb),
        (faaaa, Dtype::F32, vec![2, 2], numbers),
    ]
}

/// Opens a file with these bytes.
fn opened(bytes: &[u8]) -> Result<(File, Vec<(String, TensorInfo)>), PthError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pth");
    fs::write(&path, bytes).unwrap();
    open(&path)
}

#[test]
fn what_pytorch_saves_is_found() {
    for form in [Form::Small, Form::Large] {
        let file = archive(form, &members(GOLDEN.to_vec(), &golden()));
        let (file, tensors) = opened(&file).unwrap();
        let [(emb_name, emb), (faaaa_name, faaaa)] = &tensors[..] else { panic!("{tensors:?}") };
        assert_eq!(
            (&emb_name[..], emb.dtype, &emb.shape[..]),
            ("emb.weight", Dtype::BF16, &[3, 2][..])
        );
        assert_eq!((&faaaa_name[..], faaaa.dtype), ("blocks.0.att.time_faaaa", Dtype::F32));
        assert_eq!(emb.data_offsets.0 % 64, 0);
        let mut number = [0; 4];
        file.read_exact_at(&mut number, faaaa.data_offsets.0 as u64 + 4).unwrap();
        assert_eq!(f32::from_le_bytes(number), 257.0);
    }
    let found = pickle::tensors(&pickled(&golden()[..1])).unwrap();
    assert_eq!(found, pickle::tensors(GOLDEN).unwrap()[..1]);
}

/// Python would import and call what stands there.
#[test]
fn whatever_is_no_tensor_is_named_and_not_run() {
    let refused = |from: &[u8], to: &[u8], words: &str| {
        let error = pickle::tensors(&replaced(GOLDEN, from, to)).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    };
    let anything = "it holds posix.system: a .pth with anything but tensors is not read";
    refused(b"torch._utils\n_rebuild_tensor_v2", b"posix\nsystem", anything);
    refused(b"torch\nFloatStorage", b"torch\nLongStorage", "torch.LongStorage");
    refused(b"torch\nFloatStorage", b"collections\nOrderedDict", "not a storage");
    refused(b"\x80\x02c", b"\x80\x04c", "a pickle of protocol 4");
    refused(b"q\x15u", b"q\x15i", "the instruction 0x69");
    refused(b"Rq\x0dX\x17", b"Rq\x0d0X\x17", "the instruction 0x30");
    refused(b"X\n\x00\x00\x00emb.weight", b"K\x07", "the number 7 as a key");
    refused(b"h\x03((h", b"h\x00)RX\x01\x00\x00\x00ah\x03((h", "a dict under \"blocks.0.att");
    refused(b"u}q\x16", b"uN", "items of something else");
    refused(b"u}q\x16X", b"u}q\x16K\x01K\x01s.X", "the number 1 as a key");
    refused(b"u}q\x16", b"uN.", "None alone");
    refused(b"u}q\x16", b"uNb", "attributes of a dict");
    refused(b"h\x00)Rq\x0b", b"}K\x01K\x01sq\x0b", "a tensor with hooks");
    refused(b")Rq\x0bt", b"q\x0bt", "a tensor of another form");
    refused(b"h\x00)Rq\x13", b"h\x00h\x0aRq\x13", "a call of the name of OrderedDict");
    refused(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00c\xffu", "not UTF-8");
    let nested = [&b"\x80\x02}"[..], &text("model"), b"}s."].concat();
    let error = pickle::tensors(&nested).unwrap_err().to_string();
    assert!(error.contains("a dict under \"model\""), "{error}");
}

#[test]
fn tensors_that_are_views_or_lie_elsewhere_are_refused() {
    let refused = |pickle: Vec<u8>| {
        let bytes = archive(Form::Small, &members(pickle, &golden()));
        opened(&bytes).unwrap_err().to_string()
    };
    let turned = replaced(GOLDEN, b"\x86q\x09K\x02K\x01\x86", b"\x86q\x09K\x01K\x03\x86");
    let said = refused(turned);
    assert!(said.starts_with("emb.weight is a view") && said.contains("contiguous"), "{said}");
    let outside = replaced(GOLDEN, b"QM\x00\x01K\x02", b"QM\x29\x01K\x02");
    assert!(refused(outside).contains("outside of its storage"));
    let negative = replaced(GOLDEN, b"QM\x00\x01K\x02", b"QJ\xff\xff\xff\xffK\x02");
    assert!(refused(negative).contains("another form"));
    let huge = b"Q\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x02";
    assert!(refused(replaced(GOLDEN, b"QM\x00\x01K\x02", huge)).contains("outside"));
    assert!(refused(replaced(GOLDEN, b"M,\x01t", b"M,\x02t")).contains("another length"));
    let absent = replaced(GOLDEN, b"X\x01\x00\x00\x001", b"X\x01\x00\x00\x007");
    assert!(refused(absent).contains("are missing"));
}

#[test]
fn archives_that_pytorch_does_not_write_are_refused_with_a_remedy() {
    let all = members(GOLDEN.to_vec(), &golden());
    let good = archive(Form::Large, &all);
    let said = |bytes: &[u8]| opened(bytes).unwrap_err().to_string();
    assert!(said(&GOLDEN[..40]).contains("PyTorch 1.6"));
    assert!(said(b"").contains("PyTorch 1.6"));
    assert!(said(&good[..good.len() - 30]).contains("PyTorch 1.6"));
    let entry = good.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
    let mut packed = good.clone();
    packed[entry + 10] = 8;
    assert!(said(&packed).contains("\"model/data.pkl\" is compressed"));
    let mut swapped = all.clone();
    swapped[1].1 = b"big".to_vec();
    assert!(said(&archive(Form::Small, &swapped)).contains("big endian"));
    let mut long = all.clone();
    long[0].1.resize(5 << 20, 0);
    assert!(said(&archive(Form::Small, &long)).contains("5242880 bytes"));
    assert!(said(&archive(Form::Small, &all[1..])).contains("no data.pkl"));
    let doubled = [&all[..], &all[..1]].concat();
    assert!(said(&archive(Form::Small, &doubled)).contains("one name"));
}

/// Any end of a pickle or of an archive is an error.
#[test]
fn what_is_cut_off_is_an_error() {
    for length in 0..GOLDEN.len() {
        assert!(pickle::tensors(&GOLDEN[..length]).is_err(), "{length}");
    }
    for form in [Form::Small, Form::Large] {
        let good = archive(form, &members(GOLDEN.to_vec(), &golden()));
        for length in 0..good.len() {
            assert!(opened(&good[..length]).is_err(), "{length}");
        }
    }
}

/// No text makes the machine take much more memory than it has bytes.
#[test]
fn a_pickle_without_end_is_stopped() {
    for instruction in [&b"}"[..], &b"("[..], &b")\x85"[..]] {
        let bytes = [&b"\x80\x02"[..], &instruction.repeat(100_000), b"."].concat();
        let error = pickle::tensors(&bytes).unwrap_err().to_string();
        assert!(error.contains("65536 values"), "{error}");
    }
}
