"""The worker: code that runs anywhere, any number of times, and does not know the log.

 job              the items of a step, and their results
 dispatch         assigns each item to its function
 map_split        reads a split, and runs the task over the records that count
 judge_records    judges every record: dead, duplicate, late or processed; counts late ones by window
 duplicates       judges the records that were seen before; seen_items, seen_state: of what they are known
 stage_aside      makes and stages the rows of late records, dead letters, and keys without a result
 publish_shard    stages what a step publishes of some key groups: the difference of two views (``persistent.views``)
 shard_views      reads the parts of these views
 correct_records  reads the records of a correction by hand; correct_states, correct_lives: sum them up
 merge_runs       reads, folds and writes the runs whose sum is the state
 state_tables     folds a whole state, for readers
 output_tables    presents sums as rows
 requirements     compares the packages of a worker with those that the job needs

An item names all that its function reads. No module here can reach the log or another manifest, on any way of imports
(``NOT_REACHED`` of tests/test_house.py): what the newest checkpoint is, only the driver knows.
"""
