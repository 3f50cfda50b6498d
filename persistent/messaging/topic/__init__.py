"""A topic between processes: a sender publishes and retains messages, and receivers join at any time.

messages.py   wire.py          the messages of the protocol, the place of a receiver, and their bytes
sending.py                     the rules of a sender, what it retains, and what waits for each receiver
ordering.py                    one session as received: in order, each message once, or reported lost
receiving.py                   the receiver: finding a sender, one session after the other, and catching up
sender.py     receiver.py      both over TCP
loop_thread.py                 their connections, in a thread of one process
options.py                     the options of both
"""
