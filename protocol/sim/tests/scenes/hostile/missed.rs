//! Each rule about liars is switched off once: the scene that shows its attack must then fail.

use super::*;

#[test]
fn r32_is_missed() {
    missed(Rule::R32, forged::r32_one_of_five_keeps_chunks_of_rings_that_never_were);
}

#[test]
fn ground_is_missed() {
    missed(Rule::Ground, forged::r8_one_of_five_forges_a_vote);
}

#[test]
fn r40_is_missed() {
    missed(Rule::R40, costs::two_that_never_send_cost_few_rings);
}

#[test]
fn g1_is_missed() {
    missed(Rule::G1, guests::who_asks_for_the_next_attempt_stops_no_three);
}

#[test]
fn g2_is_missed() {
    missed(Rule::G2, voters::ready_asker_on_a_300_ms_link);
}

#[test]
fn g4_is_missed() {
    missed(Rule::G4, costs::a_voter_that_refuses_every_roster_has_no_place);
}

#[test]
fn g5_is_missed() {
    missed(Rule::G5, guests::old_sybils_hold_the_guest_places);
}

#[test]
fn g6_is_missed() {
    missed(Rule::G6, voters::weights_zero_at_once);
}

#[test]
fn g7_is_missed() {
    missed(Rule::G7, guests::a_roster_of_more_newcomers_than_voters_is_refused);
}

#[test]
fn g8_is_missed() {
    missed(Rule::G8, newcomers::fresh_keys_hold_up_no_founding);
}

#[test]
fn g9_is_missed() {
    missed(Rule::G9, voters::mute_voters_are_left_behind);
}

#[test]
fn g10_is_missed() {
    missed(Rule::G10, guests::who_answers_pings_late_slows_nobody);
}

#[test]
fn g13_is_missed() {
    missed(Rule::G13, costs::who_never_sends_is_remembered);
}

#[test]
fn g14_is_missed() {
    missed(Rule::G14, costs::who_hides_its_vote_is_not_heard);
}
