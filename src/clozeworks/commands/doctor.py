"""clozeworks doctor"""

from clozeworks import doctor
from clozeworks.commands.arguments import Options
from clozeworks.commands.screen import closing, screen


def run(options: Options) -> None:
    console = screen()
    verdict = None if options.again else doctor.remembered()
    if verdict is None:
        if options.json:
            verdict = doctor.probe()
        else:
            with console.status("measuring threads, bf16 and devices, about fifteen seconds"):
                verdict = doctor.probe()
    if options.json:
        print(doctor.as_json(verdict))
        return
    console.print(doctor.render(verdict))
    kept = doctor.remembered() is not None  # a busy machine's verdict is not
    closing(console, str(doctor.cache_file()) if kept else None, "clozeworks quickstart")
