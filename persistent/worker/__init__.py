"""The worker: code that runs anywhere, any number of times, and does not know the log.

 job              the items of a step, and their results
 dispatch         assigns each item to its function
 map_split        reads a split, and runs the task over the records that count
 judge_records    judges every record: dead, duplicate, late or processed; time_limit: dead by its timestamp
 duplicates       judges the records that were seen before; seen_items, seen_state: of what they are known
 late_windows     counts late records by the window that they missed
 stage_aside      makes and stages the rows of late records and dead letters
 publish_shard    stages the results of some of the keys of a step, by the next four
 close_windows    folds the panes of windows that are over
 close_sessions   and the parts of sessions that are over
 expire_keys      takes back the keys whose time to live has passed
 revise_windows   publishes again what late records, or a changing state, have changed; revise_sessions: of sessions
 undone_sessions  retracts sessions that a rollback has undone and left published
 correct_records  reads the records of a correction by hand; correct_states, correct_lives: sum them up
 merge_runs       reads, folds and writes the runs whose sum is the state
 state_tables     folds a whole state, for readers
 output_tables    presents sums as rows
 failing_keys     finds the key whose fold or presentation fails
 requirements     compares the packages of a worker with those that the job needs

An item names all that its function reads. No module here can reach the log or another manifest, on any way of imports
(``NOT_REACHED`` of tests/test_house.py): what the newest checkpoint is, only the driver knows.
"""
