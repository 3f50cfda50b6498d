"""Kafka: a topic is read by offsets; rows and their mark are written in one transaction.

source              the source
sink, place         the sink; the topic that holds the mark of another
client, settings    connections that retry; the settings that users give
"""
