"""`bringup preflight`: which nodes of a user's own job are healthy; their command runs on those, with spares.

allocation: the job, and environments that show a part of it · checks: phases inside it, whom they accuse, and the best
nodes · command: the user's command, watched · flow: all of it, attempt by attempt
"""
