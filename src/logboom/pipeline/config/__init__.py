"""From a pipeline's YAML to its plan, with every problem reported at once, each at its line.

`compile.compile_pipeline` does it. Its one rule is that nothing is raised before the whole file has been looked at. The
text becomes plain data with the line of each value (`base.yaml`). `logboom.pipeline.findings.Findings` goes through all
steps and collects problems; a part that cannot be compiled is left out, and the graph remembers its name, so that one
fault is not reported again by everything that reads the part:

1. `model` says which keys the document, its sources and its tests have; transforms, formats and sinks say it in their
   own files (`pipeline.transforms`, `pipeline.parse.formats`, `pipeline.sinks`). The parts are loaded one by one; where
   a `type` is misspelt the other keys are still checked.
2. `parts` turns each model into a node of the plan (`plan.nodes`), on its own; for transforms and sinks it calls the
   `compile` of their kind.
3. `graph` joins the nodes: names, inputs, cycles, records or events on each edge, edges without a reader.
4. `streams` and `directories` check what the pipeline uses outside itself: streams that feed themselves, directories
   that two sinks share, and with an environment given also keys and what this machine can write.
5. `sqlcheck` checks the SQL: what the kernels evaluate themselves is known to be right, what was checked before is in
   `sqlcache`, the rest is checked by Spark's own analyser (`spark.catalyst`) and the rules of `pipeline.sql`.

What `check` accepts must run; tests/pipeline_core/test_mutations.py looks for exceptions. Nothing in here imports
pyspark, opens a connection or changes a file but the cache of verdicts.
"""
