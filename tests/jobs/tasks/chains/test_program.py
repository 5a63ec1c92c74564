import pytest

from jobs.tasks.chains.program import ProgramError, run_program


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("x=6\nx*=2\nx%=10\nprint(x)\n", [2]),
        ("v=(((6*2)-5)*3)%10\nprint(v)\n", [1]),
        ("x=3\ny=x-9\ny%=10\nprint(y)\nprint(x)\n", [4, 3]),
        ("x=-7%10\nprint(x)\n", [3]),
        ("", []),
    ],
)
def test_programs_of_the_language_run_as_python_would(source, printed):
    assert run_program(source) == printed


@pytest.mark.parametrize(
    "source",
    [
        "import os\n",
        "x=__import__('os')\n",
        "x=open('f')\nprint(x)\n",
        "x=2**9\nprint(x)\n",
        "x=(1).real\nprint(x)\n",
        "x=9\nx//=2\nprint(x)\n",
        "x,y=1,2\n",
        "x=y=1\nx[0]=1\n",
        "print(x)\n",
        "x+=1\n",
        "x=1%0\n",
        "x=1\nprint(x,x)\n",
        "x=1\nprint(x+1)\n",
        "while 1:\n x=1\n",
        "x=lambda y: y\n",
        "x=1 if 2 else 3\n",
        "x=(\n",
        "x=07\n",
        "x=" + "9" * 100 + "\n",
        "x=9\n" + "x*=x\n" * 12,
        "x=" + "(" * 300 + "1" + ")" * 300 + "\n",
        "x=" + "-" * 300 + "1\n",
        "x=1" + "+1" * 300 + "\n",
        "x=1\n" * 1000,
    ],
)
def test_anything_else_is_refused(source):
    with pytest.raises(ProgramError):
        run_program(source)
