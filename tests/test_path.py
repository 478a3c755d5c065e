"""How much of the package one judgement passes through is noted in the command and in its children."""

from tools.path import CASE, PACKAGE, passed_files


def test_files_of_the_command_and_of_the_child_are_noted_and_those_only_imported_are_not():
    files = passed_files(CASE, "./my_attention.py:attention")
    folders = {
        process: {
            path.relative_to(PACKAGE / "conformance").parts[0]
            for path in paths
            if "conformance" in path.parts
        }
        for process, paths in files.items()
    }
    assert {"cli", "run", "attribution", "render"} <= folders["command"]
    assert {"run", "judge"} <= folders["child"]
    assert not {"gallery", "export"} & (folders["command"] | folders["child"])
