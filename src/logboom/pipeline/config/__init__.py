"""From a pipeline's YAML to its plan, with all problems reported together, each with its line.

The entry point is `compile.compile_pipeline`. Its main rule: nothing is raised before the whole file has been checked.
The text becomes plain data with the line of each value (`base.yaml`). `logboom.pipeline.findings.Findings` is passed
through all steps and collects problems. A part that cannot be compiled is left out, and the graph remembers its name,
so that its readers do not report the same fault again:

1. `model` says which keys the document, its sources and its tests have; transforms, formats and sinks define theirs in
   their own files (`pipeline.transforms`, `pipeline.parse.formats`, `pipeline.sinks`). The parts are loaded one by one;
   if a `type` is misspelt, the other keys are still checked.
2. `parts` turns each model into a node of the plan (`plan.nodes`), on its own; for transforms and sinks it calls the
   `compile` of their kind.
3. `graph` joins the nodes: names, inputs, cycles, records or events on each edge, edges without a reader.
4. `streams` and `directories` check what the pipeline uses outside itself: streams that feed themselves, directories
   that two sinks share, and with an environment given also keys and what this machine can write.
5. `sqlcheck` checks the SQL: expressions that the kernels evaluate themselves need no check, earlier verdicts are in
   `sqlcache`, and Spark's own analyser (`spark.catalyst`) and the rules of `pipeline.sql` check the rest.

Every file that `check` accepts must run; tests/pipeline_core/test_mutations.py searches for exceptions. Nothing in here
imports pyspark, opens a connection or changes a file but the cache of verdicts.
"""
