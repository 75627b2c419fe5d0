"""On the path of the tests' hubs and servers, in place of the package of this name.

jsonschema imports that one to check the form of IRIs, if it is there; it compiles a grammar at each import, which takes two
seconds in every hub and every server, and no schema of theirs has such a field.
"""

raise ImportError("the form of IRIs isn't checked in the tests")
