"""A task: what a user writes, and what a message does to its states.

task          PersistentTask: keys, states, and what each message contributes
message       a message; a batch of messages, as columns
processing    a task run over a batch
delta         the updates of a step, summed up as columns
dedupe        copies of a record
"""
