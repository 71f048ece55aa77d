//! Attention compared with its plain form, and tests that queries see only earlier tokens of their
//! own document.

use burn_backend::ops::FloatTensorOps;
use burn_tensor::{Tensor, TensorPrimitive};

use super::super::FusedOps;
use super::super::tests::{
    A, SHAPES, assert_plain, assert_slopes, distance, heads, input, leaf, random, values,
};
use super::*;

/// Rows packed with documents of `every` tokens, one token more in each next row.
fn documents(heads: Heads, every: usize) -> Documents {
    let number = |position: usize| {
        let (row, at) = (position / heads.tokens, position % heads.tokens);
        (at / (every + row)) as i32
    };
    let numbers: Vec<_> = (0..heads.sequences * heads.tokens).map(number).collect();
    Documents::packed(&numbers, heads.tokens)
}

#[test]
fn causal_attention_is_the_plain_form() {
    for shape in SHAPES {
        let heads = heads(shape);
        let qkv = input(&[heads.sequences * heads.tokens, heads.row()], 2.0, 1);
        // Documents shorter than a block, longer than one, and as long as the whole row.
        for every in [1, 7, 70, 1000] {
            let documents = documents(heads, every);
            assert_plain(Attention { heads, documents }, [qkv.clone()]);
        }
    }
    let heads = heads([2, 9, 4, 2, 6]);
    for every in [100, 4] {
        let documents = documents(heads, every);
        assert_slopes(Attention { heads, documents }, [input(&[18, heads.row()], 1.0, 1)]);
    }
}

/// The output of attention for packed rows.
fn attend(heads: Heads, documents: Documents, x: &[f32]) -> Vec<f32> {
    let shape = [heads.sequences * heads.tokens, heads.row()];
    let x = A::float_reshape(leaf(x).into_primitive().tensor(), shape.into());
    let y = A::run(Attention { heads, documents }, [x]);
    values(Tensor::<A, 2>::from_primitive(TensorPrimitive::Float(y)))
}

/// Three documents in one row give the results that each gives alone, bit for bit where no block
/// holds two.
#[test]
fn a_packed_document_sees_nothing_of_the_others() {
    let heads = heads([1, 200, 4, 2, 8]);
    let x = random(200 * heads.row(), 1.0, 5);
    let numbers: Vec<i32> = (0..200).map(|at| i32::from(at >= 64) + i32::from(at >= 150)).collect();
    let packed = attend(heads, Documents::packed(&numbers, 200), &x);
    let alone = [(0, 64), (64, 150), (150, 200)].map(|(start, end)| {
        let part = &x[start * heads.row()..end * heads.row()];
        let tokens = end - start;
        attend(Heads { tokens, ..heads }, Documents::whole(tokens), part)
    });
    assert!(distance(&packed, &alone.concat()) < 1e-6);
    assert_eq!(packed[..128 * 32], alone.concat()[..128 * 32]);
}

#[test]
fn a_document_begins_where_the_number_changes() {
    let starts =
        |numbers: &[i32], length| Documents::packed(numbers, length).starts.numbers.clone();
    assert_eq!(starts(&[4, 4, 2, 2, 2, 4, 4, 4], 4), [0, 0, 2, 2, 0, 1, 1, 1]);
    assert_eq!(starts(&[7; 4], 4), Documents::whole(4).starts.numbers.clone());
}

#[test]
fn a_later_token_changes_nothing_before_it() {
    let heads = heads([1, 70, 4, 2, 8]);
    let mut x = random(70 * heads.row(), 1.0, 5);
    let run = |x: &[f32]| attend(heads, Documents::whole(70), x);
    let before = run(&x);
    let changed = 66;
    x[changed * heads.row()..].fill(3.0);
    let after = run(&x);
    let width = heads.query * heads.size;
    assert_eq!(before[..changed * width], after[..changed * width]);
    assert_ne!(before[changed * width..], after[changed * width..]);
}
