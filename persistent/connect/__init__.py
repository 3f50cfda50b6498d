"""Sources and sinks: one contract, and a folder for each system.

source, sink                     the contract: what a source and a sink are, and when each method is called
options, secrets, remedies       what their options share; what no message shows; what to do about bad input
promises                         what each of them guarantees
offsets, halves, then            sources of offsets; a history, then a live source
outlet, marked                   where outputs wait; the mark of a sink that takes a batch at a time
sql, registry                    tables of outputs; a schema registry

files, formats                   files, and the formats of files and messages
kafka, rabbitmq, log, topic      brokers
postgres, sqlite                 databases
memory, function                 a list of rows; a function of the user
"""
