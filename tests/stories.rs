//! Stories on real nodes, one a file. They share two clusters and take turns on each.

#[path = "stories/a_fleet_becomes_ready.rs"]
mod a_fleet_becomes_ready;
#[path = "stories/a_fleet_grows_and_shrinks.rs"]
mod a_fleet_grows_and_shrinks;
#[path = "stories/a_fleet_shares_its_nodes.rs"]
mod a_fleet_shares_its_nodes;
#[path = "stories/a_full_node_is_upgraded.rs"]
mod a_full_node_is_upgraded;
#[path = "stories/a_game_in_a_hurry_becomes_ready.rs"]
mod a_game_in_a_hurry_becomes_ready;
#[path = "stories/a_node_is_cut_off.rs"]
mod a_node_is_cut_off;
#[path = "stories/a_node_is_drained_with_players_on.rs"]
mod a_node_is_drained_with_players_on;
#[path = "stories/a_pod_is_confined.rs"]
mod a_pod_is_confined;
#[path = "stories/a_pod_of_several_containers_has_one_game.rs"]
mod a_pod_of_several_containers_has_one_game;
#[path = "stories/a_port_that_is_taken_is_named.rs"]
mod a_port_that_is_taken_is_named;
#[path = "stories/a_quota_is_an_error_with_its_words.rs"]
mod a_quota_is_an_error_with_its_words;
#[path = "stories/an_image_is_changed_under_a_fleet.rs"]
mod an_image_is_changed_under_a_fleet;
#[path = "stories/evictions_are_refused_where_they_end_a_session.rs"]
mod evictions_are_refused_where_they_end_a_session;
#[path = "stories/official_clients_live_a_full_life.rs"]
mod official_clients_live_a_full_life;
#[path = "stories/ports_of_every_policy_answer.rs"]
mod ports_of_every_policy_answer;
#[path = "stories/the_agent_dies_and_nothing_else_does.rs"]
mod the_agent_dies_and_nothing_else_does;
#[path = "stories/the_agents_are_updated_with_players_on.rs"]
mod the_agents_are_updated_with_players_on;
#[path = "stories/the_shipped_pods_have_the_least_privileges.rs"]
mod the_shipped_pods_have_the_least_privileges;
