"""RabbitMQ: queues, through a journal; and streams, by offsets.

queue_source, queue_sink                               a queue, an exchange
pump, journal, frames                                  from a queue into its journal; journaled messages
link, topology                                         a connection with one channel; queues, exchanges, bindings
stream_source, stream_sink                             a stream
stream_client, stream_connection, stream_settings      its connections and settings; event_loop: their thread
amqp_body                                              the format of its records
"""
