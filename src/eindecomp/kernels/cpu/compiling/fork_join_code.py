"""The code of `fork_join` in LLVM's language, and where in memory it finds what.

All words are of eight bytes. The header begins with the number of the next job, alone in its line
of the cache; from `CONFIG` on it says how many jobs there are, where they are (a function and its
argument each), how many helpers, the addresses of the system's sem_wait, sem_post, sched_yield and
sched_getcpu (0 where there is none), how many turns to spin, and the core of a caller that found a
helper on its own core (-1 if none did). A slot for each helper follows: its state, whether it
sleeps, where the header is, the core that it was on last, and a semaphore. A slot that is called is
*taken* by its helper or taken back.
"""

from __future__ import annotations

CONFIG, HEADER, SLOT, SEMAPHORE = 16, 32, 48, 16
"""Words: where the configuration begins, the slots, how long a slot is, and where in it to wait."""
SPINS, CROWDED = CONFIG + 7, CONFIG + 8
"""The words for how many turns to spin, and for the core that a caller shares with a helper."""
JOIN, ROUSE, SPIN, SERVE, REPEAT = range(5)
"""What a request asks for, its first word; the second is the header's address, or a slot's.

The third word of REPEAT is where its table is: how many places to write to, where they are listed
(the place, where the array is named, and the offset into its data), how many groups of jobs, where
they are listed (how many jobs, and where), and where in an array's object its data's address is.
"""
_FREE, _CALLED, _TAKEN, _DONE = range(4)  # states of a slot

_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def fork_join_code(triple: str, name: str) -> str:
    """The module for a machine, with one function, of the address of a request."""
    machine = triple.partition("-")[0].replace("arm64", "aarch64")
    declared, pause = _PAUSES.get(machine, ("", ""))
    config = ("count", "jobs", "helpers", "wait", "post", "yield", "core", "spins", "crowded")
    words = {each: 8 * (CONFIG + k) for k, each in enumerate(config)}
    text = _TEXT.replace("PAUSE", pause).replace("NAME", name)
    for key, value in (words | _NUMBERS).items():
        text = text.replace(f"<{key}>", str(value))
    return f"{declared}\n{text}"


_NUMBERS = {
    "free": _FREE,
    "called": _CALLED,
    "taken": _TAKEN,
    "done": _DONE,
    "SERVE": SERVE,
    "JOIN": JOIN,
    "ROUSE": ROUSE,
    "REPEAT": REPEAT,
    "first": 8 * HEADER,
    "slot": 8 * SLOT,
    "semaphore": 8 * SEMAPHORE,
}

_TEXT = """
define internal i64 @word(ptr %base, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %base, i64 %offset
  %value = load i64, ptr %at
  ret i64 %value
}

define internal ptr @slot(ptr %header, i64 %k) alwaysinline {
  %far = mul i64 %k, <slot>
  %offset = add i64 %far, <first>
  %at = getelementptr i8, ptr %header, i64 %offset
  ret ptr %at
}

; The core that this thread is on, -1 where the system does not say.
define internal i64 @core(ptr %header) {
  %number = call i64 @word(ptr %header, i64 <core>)
  %known = icmp ne i64 %number, 0
  br i1 %known, label %ask, label %no
ask:
  %function = inttoptr i64 %number to ptr
  %core = call i32 %function()
  %wide = sext i32 %core to i64
  ret i64 %wide
no:
  ret i64 -1
}

; Wake a helper up if it sleeps. Once too often does no harm: it looks, and sleeps again.
define internal void @wake(ptr %header, ptr %slot) {
  %at = getelementptr i8, ptr %slot, i64 8
  %before = atomicrmw xchg ptr %at, i64 0 seq_cst
  %sleeps = icmp ne i64 %before, 0
  br i1 %sleeps, label %do, label %end
do:
  %number = call i64 @word(ptr %header, i64 <post>)
  %post = inttoptr i64 %number to ptr
  %semaphore = getelementptr i8, ptr %slot, i64 <semaphore>
  call i32 %post(ptr %semaphore)
  br label %end
end:
  ret void
}

; Do jobs until none is left.
define internal void @work(ptr %header) {
  %count = call i64 @word(ptr %header, i64 <count>)
  %number = call i64 @word(ptr %header, i64 <jobs>)
  %jobs = inttoptr i64 %number to ptr
  br label %next
next:
  %k = atomicrmw add ptr %header, i64 1 seq_cst
  %some = icmp slt i64 %k, %count
  br i1 %some, label %do, label %end
do:
  %offset = mul i64 %k, 16
  %job = getelementptr i8, ptr %jobs, i64 %offset
  %function = call i64 @word(ptr %job, i64 0)
  %argument = call i64 @word(ptr %job, i64 8)
  %pointer = inttoptr i64 %function to ptr
  call void %pointer(i64 %argument)
  br label %next
end:
  ret void
}

; Spin until the state of a slot is a certain one; whether it became so in time.
define internal i1 @spin(ptr %slot, i64 %wanted, i64 %turns) {
  br label %look
look:
  %turn = phi i64 [0, %0], [%more, %again]
  %state = load atomic i64, ptr %slot acquire, align 8
  %same = icmp eq i64 %state, %wanted
  br i1 %same, label %yes, label %again
again:
  PAUSE
  %more = add i64 %turn, 1
  %left = icmp slt i64 %more, %turns
  br i1 %left, label %look, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; A helper: wait for a call, work along, and so on for ever.
define internal void @serve(ptr %slot) {
  %address = call i64 @word(ptr %slot, i64 16)
  %header = inttoptr i64 %address to ptr
  %sleeps = getelementptr i8, ptr %slot, i64 8
  %semaphore = getelementptr i8, ptr %slot, i64 <semaphore>
  %own = getelementptr i8, ptr %slot, i64 24
  %number = call i64 @word(ptr %header, i64 <wait>)
  %wait = inttoptr i64 %number to ptr
  %turns = call i64 @word(ptr %header, i64 <spins>)
  br label %begin
begin:
  %core = call i64 @core(ptr %header)
  store atomic i64 %core, ptr %own seq_cst, align 8
  %soon = call i1 @spin(ptr %slot, i64 <called>, i64 %turns)
  br i1 %soon, label %take, label %tire
tire:
  ; Said before looking: who calls looks after calling.
  store atomic i64 1, ptr %sleeps seq_cst, align 8
  %state = load atomic i64, ptr %slot seq_cst, align 8
  %called = icmp eq i64 %state, <called>
  br i1 %called, label %take, label %sleep
sleep:
  call i32 %wait(ptr %semaphore)
  br label %begin
take:
  store atomic i64 0, ptr %sleeps seq_cst, align 8
  %pair = cmpxchg ptr %slot, i64 <called>, i64 <taken> seq_cst seq_cst
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %help, label %begin
help:
  call void @work(ptr %header)
  store atomic i64 <done>, ptr %slot seq_cst, align 8
  br label %begin
}

define internal void @rouse(ptr %header) {
  %helpers = call i64 @word(ptr %header, i64 <helpers>)
  br label %next
next:
  %k = phi i64 [0, %0], [%more, %do]
  %some = icmp slt i64 %k, %helpers
  br i1 %some, label %do, label %end
do:
  %slot = call ptr @slot(ptr %header, i64 %k)
  call void @wake(ptr %header, ptr %slot)
  %more = add i64 %k, 1
  br label %next
end:
  ret void
}

define internal void @join(ptr %header) {
  %all = call i64 @word(ptr %header, i64 <helpers>)
  %count = call i64 @word(ptr %header, i64 <count>)
  %turns = call i64 @word(ptr %header, i64 <spins>)
  %number = call i64 @word(ptr %header, i64 <yield>)
  %yield = inttoptr i64 %number to ptr
  %core = call i64 @core(ptr %header)
  %crowded = getelementptr i8, ptr %header, i64 <crowded>
  %others = sub i64 %count, 1
  %fewer = icmp slt i64 %others, %all
  %helpers = select i1 %fewer, i64 %others, i64 %all
  store atomic i64 0, ptr %header seq_cst, align 8
  br label %call
call:
  %k = phi i64 [0, %0], [%k1, %post], [%k1, %crowd]
  %some = icmp slt i64 %k, %helpers
  br i1 %some, label %post, label %own
post:
  %slot = call ptr @slot(ptr %header, i64 %k)
  store atomic i64 <called>, ptr %slot seq_cst, align 8
  call void @wake(ptr %header, ptr %slot)
  %k1 = add i64 %k, 1
  %place = call i64 @word(ptr %slot, i64 24)
  %same = icmp eq i64 %place, %core
  br i1 %same, label %crowd, label %call
crowd:
  store i64 %core, ptr %crowded
  br label %call
own:
  call void @work(ptr %header)
  br label %dismiss
dismiss:
  %n = phi i64 [0, %own], [%n1, %back], [%n1, %free]
  %more = icmp slt i64 %n, %helpers
  br i1 %more, label %take, label %end
take:
  %n1 = add i64 %n, 1
  %mine = call ptr @slot(ptr %header, i64 %n)
  %pair = cmpxchg ptr %mine, i64 <called>, i64 <free> seq_cst seq_cst
  %stays = extractvalue { i64, i1 } %pair, 1
  br i1 %stays, label %back, label %wait
back:
  br label %dismiss
wait:
  %ended = call i1 @spin(ptr %mine, i64 <done>, i64 %turns)
  br i1 %ended, label %free, label %rest
rest:
  ; It has no core of its own just now: it may have this one.
  call i32 %yield()
  br label %wait
free:
  store atomic i64 <free>, ptr %mine seq_cst, align 8
  br label %dismiss
end:
  ret void
}

; Write down where arrays are, then do groups of jobs, one group after another.
define internal void @repeat(ptr %header, ptr %table) {
  %count = call i64 @word(ptr %table, i64 0)
  %places = call i64 @word(ptr %table, i64 8)
  %groups = call i64 @word(ptr %table, i64 16)
  %listed = call i64 @word(ptr %table, i64 24)
  %within = call i64 @word(ptr %table, i64 32)
  %place = inttoptr i64 %places to ptr
  %group = inttoptr i64 %listed to ptr
  %counted = getelementptr i8, ptr %header, i64 <count>
  %found = getelementptr i8, ptr %header, i64 <jobs>
  br label %next
next:
  %k = phi i64 [0, %0], [%k1, %write]
  %some = icmp slt i64 %k, %count
  br i1 %some, label %write, label %each
write:
  %far = mul i64 %k, 24
  %entry = getelementptr i8, ptr %place, i64 %far
  %to = call i64 @word(ptr %entry, i64 0)
  %from = call i64 @word(ptr %entry, i64 8)
  %offset = call i64 @word(ptr %entry, i64 16)
  %named = inttoptr i64 %from to ptr
  %object = call i64 @word(ptr %named, i64 0)
  %array = inttoptr i64 %object to ptr
  %data = call i64 @word(ptr %array, i64 %within)
  %address = add i64 %data, %offset
  %target = inttoptr i64 %to to ptr
  store i64 %address, ptr %target
  %k1 = add i64 %k, 1
  br label %next
each:
  %g = phi i64 [0, %next], [%g1, %alone], [%g1, %together]
  %more = icmp slt i64 %g, %groups
  br i1 %more, label %do, label %end
do:
  %g1 = add i64 %g, 1
  %further = mul i64 %g, 16
  %own = getelementptr i8, ptr %group, i64 %further
  %size = call i64 @word(ptr %own, i64 0)
  %jobs = call i64 @word(ptr %own, i64 8)
  %one = icmp eq i64 %size, 1
  br i1 %one, label %alone, label %together
alone:
  %job = inttoptr i64 %jobs to ptr
  %number = call i64 @word(ptr %job, i64 0)
  %argument = call i64 @word(ptr %job, i64 8)
  %function = inttoptr i64 %number to ptr
  call void %function(i64 %argument)
  br label %each
together:
  store i64 %size, ptr %counted
  store i64 %jobs, ptr %found
  call void @join(ptr %header)
  br label %each
end:
  ret void
}

define void @NAME(i64 %request) {
  %at = inttoptr i64 %request to ptr
  %what = call i64 @word(ptr %at, i64 0)
  %number = call i64 @word(ptr %at, i64 8)
  %base = inttoptr i64 %number to ptr
  switch i64 %what, label %spin [
    i64 <SERVE>, label %serve
    i64 <JOIN>, label %join
    i64 <ROUSE>, label %rouse
    i64 <REPEAT>, label %repeat
  ]
serve:
  call void @serve(ptr %base)
  ret void
join:
  call void @join(ptr %base)
  ret void
rouse:
  call void @rouse(ptr %base)
  ret void
repeat:
  %third = call i64 @word(ptr %at, i64 16)
  %table = inttoptr i64 %third to ptr
  call void @repeat(ptr %base, ptr %table)
  ret void
spin:
  %turns = call i64 @word(ptr %base, i64 <spins>)
  %ignored = call i1 @spin(ptr %base, i64 -1, i64 %turns)
  ret void
}
"""
