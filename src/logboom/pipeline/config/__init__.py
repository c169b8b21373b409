"""From a pipeline's YAML to its plan, with everything that is wrong told at once, each problem at its line.

`compile.compile_pipeline` is the way in, and the one rule is that nothing is raised before the whole file has been
looked at. The text becomes plain data with the line of each value (`base.yaml`). `findings.Findings` goes through all
steps and collects; a part that cannot be compiled is left out, and the graph knows its name, so that its readers do not
tell of it again:

1. `model` says which keys each part has. The parts are loaded one by one; a misspelt `type` still has its other keys
   looked at.
2. `parts` and `rules` turn models into nodes of the plan (`plan.nodes`): patterns, times, names, each on its own. The
   kinds of sinks do this in their own files (`pipeline.sinks`).
3. `graph` joins them: names, inputs, cycles, what stands on each edge, what nobody reads.
4. `streams` and `directories` look at what the pipeline touches outside: streams that feed themselves, directories that
   two sinks share, and with an environment given also keys and what this machine can write.
5. `sqlcheck` judges the SQL: by itself where the kernels answer it, from `sqlcache` where it was judged before, else by
   Spark's own analyser (`spark.catalyst`) and the rules of `pipeline.sql`.

What `check` accepts must run; tests/pipeline_core/test_mutations.py looks for exceptions. Nothing in here imports
pyspark, opens a connection or changes a file but the cache of verdicts.
"""
