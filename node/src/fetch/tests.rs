//! What can be tested of a transfer without a network. The tests of `protocol` show which peers a download asks and
//! believes.

use super::*;
use crate::store::tests::open;

#[test]
fn parts_cover_the_whole_and_end() {
    let bytes: Vec<u8> = (0..PART_BYTES + 5).map(|i| i.to_le_bytes()[0]).collect();
    assert_eq!(part_of(&bytes, 0).unwrap().len(), PART_BYTES);
    assert_eq!(part_of(&bytes, PART_BYTES as u64).unwrap(), bytes[PART_BYTES..]);
    assert!(part_of(&bytes, bytes.len() as u64).unwrap().is_empty());
    assert_eq!(part_of(&bytes, u64::MAX), None);
    // Parts come in any order, and one of them twice.
    let mut whole = Vec::new();
    for offset in [PART_BYTES as u64, 0, PART_BYTES as u64] {
        put(&mut whole, offset, &part_of(&bytes, offset).unwrap()).unwrap();
    }
    assert!(whole == bytes);
    assert_eq!(put(&mut whole, u64::MAX, &[1]), None);
}

/// The momentum of published weights is all zeros and is never asked for. Neither is what is on disk.
#[tokio::test]
async fn pieces_that_are_known_need_not_come() {
    let piece = PIECE_BYTES / 4;
    let theta = [vec![0.0; piece], vec![1.0; piece], vec![2.0; 7]].concat();
    let header = Header::published(theta.len() as u64);
    let table = Table::of(header, &theta, &vec![0.0; theta.len()]).unwrap();
    let (state, present) = stored_pieces(&table, None).await.unwrap();
    assert_eq!((state.theta().len(), present), (theta.len(), BTreeSet::from([0, 3, 4, 5])));
    let (_folder, store) = open();
    let store = Arc::new(store);
    let mut incoming = Some(open_incoming(&store, &table).await.unwrap());
    let bytes: Vec<u8> =
        theta[2 * piece..].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert!(store_piece(&mut incoming, &table, 2, bytes).await.is_none());
    let (state, present) = stored_pieces(&table, incoming).await.unwrap();
    assert_eq!((state.theta()[2 * piece], present), (2.0, BTreeSet::from([0, 2, 3, 4, 5])));
    assert_eq!(stored_table(&store, header, table.state()).await, Some(table.clone()));
    let pieces = pieces(&table);
    assert_eq!(
        pieces.iter().map(|piece| piece.length).collect::<Vec<_>>()[..3],
        [1 << 20, 1 << 20, 28]
    );
    assert_eq!(pieces[1].offset, pieces[0].offset + (1 << 20));
}
