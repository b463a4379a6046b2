"""`virta permission`: what users may do with topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from virta.cli.access import change, look
from virta.cli.invocation import Invocation, output_option, output_options, quiet_option
from virta.cli.output import choose_form, note, print_record, print_records
from virta.cli.report import Exit

if TYPE_CHECKING:
    from virta.security.permissions import Permission

_COLUMNS = ("who", "effect", "verbs", "topics")


@click.group(no_args_is_help=True)
def permission() -> None:
    """List, add, remove or try out permissions.

    A rule says who (a user, everyone, anonymous) may do what (produce, consume, administer, all) with
    which topics (* stands for any characters). What no rule allows is denied; a denial wins.

    \b
    Examples:
      virta permission add ada produce,consume 'orders*'
      virta permission add everyone consume payroll --deny
      virta permission check ada consume orders
    """


@permission.command()
@click.argument("who", metavar="[WHO]", required=False)
@output_options("who they are for")
@click.pass_obj
def ls(invocation: Invocation, who: str | None) -> None:
    """List the rules, all or those for one.

    \b
    Examples:
      virta permission ls
      virta permission ls ada
      virta permission ls -o json
    """
    records = [
        {
            "who": rule.who,
            "effect": "deny" if rule.denies else "allow",
            "verbs": str(rule.grant).partition(":")[0],
            "topics": rule.grant.topics,
        }
        for rule in look(invocation).permissions
        if who in (None, rule.who)
    ]
    print_records(invocation, records, key="who", names=_COLUMNS)
    if not records:
        note(invocation, "no rules: nothing is allowed to anybody who logs in")


@permission.command()
@click.argument("who", metavar="WHO")
@click.argument("verbs", metavar="VERBS")
@click.argument("topics", metavar="TOPICS")
@click.option("--deny", is_flag=True, help="Deny it, whatever other rules allow.")
@quiet_option("Say nothing.")
@click.pass_obj
def add(invocation: Invocation, who: str, verbs: str, topics: str, deny: bool) -> None:
    """Allow something, or deny it.

    Topics of Virta's own need a pattern that begins with __: everyone consume __events.

    \b
    Examples:
      virta permission add ada produce,consume 'orders*'
      virta permission add everyone consume '*'
      virta permission add bob consume payroll --deny
    """
    rule = _rule(who, verbs, topics, deny)
    change(invocation, lambda access: access.with_permission(rule), "permission added", rule=str(rule))
    note(invocation, str(rule))


@permission.command()
@click.argument("who", metavar="WHO")
@click.argument("verbs", metavar="VERBS")
@click.argument("topics", metavar="TOPICS")
@click.option("--deny", is_flag=True, help="The rule is one that denies.")
@quiet_option("Say nothing.")
@click.pass_obj
def rm(invocation: Invocation, who: str, verbs: str, topics: str, deny: bool) -> None:
    """Remove a rule, as it stands in the list.

    \b
    Examples:
      virta permission rm ada produce,consume 'orders*'
      virta permission rm everyone consume '*'
      virta permission rm bob consume payroll --deny
    """
    rule = _rule(who, verbs, topics, deny)
    change(invocation, lambda access: access.without_permission(rule), "permission removed", rule=str(rule))
    note(invocation, f"removed: {rule}")


@permission.command()
@click.argument("who", metavar="WHO")
@click.argument("verb", metavar="VERB")
@click.argument("topic", metavar="TOPIC")
@output_option("table", "json")
@quiet_option("Say nothing; only the exit code tells.")
@click.pass_context
def check(context: click.Context, who: str, verb: str, topic: str) -> None:
    """Say whether somebody may do something, and why. Exit 6 when not.

    \b
    Examples:
      virta permission check ada consume orders
      virta permission check anonymous produce clicks
      virta permission check -q ada administer orders
    """
    from virta.security.permissions import check_who, decide, parse_verbs
    from virta.security.principal import ANONYMOUS, How, Principal

    invocation: Invocation = context.obj
    access = look(invocation)
    principal = ANONYMOUS
    if check_who(who) != "anonymous":
        principal = Principal(name=who, how=How.PASSWORD)
        if who != "everyone":
            access.user(who)
    public = _is_public(invocation, topic)
    decisions = [
        decide(access.permissions, principal, each, topic, publicly_writable=public)
        for each in sorted(parse_verbs(verb))
    ]
    decision = next((each for each in decisions if not each.allowed), decisions[0])
    record = {
        "who": who,
        "verb": verb,
        "topic": topic,
        "allowed": decision.allowed,
        "reason": decision.reason,
    }
    if choose_form(invocation) == "json":
        print_record(invocation, record)
    elif not invocation.quiet:
        click.echo(f"{'allowed' if decision.allowed else 'denied'}: {decision.reason}")
    if not decision.allowed:
        context.exit(Exit.DENIED)


def _is_public(invocation: Invocation, topic: str) -> bool:
    from virta.cli.access import open_directory
    from virta.errors import NotFound

    with open_directory(invocation) as log:
        try:
            return log.topic(topic).config.public_write
        except NotFound:
            return False


def _rule(who: str, verbs: str, topics: str, denies: bool) -> Permission:
    from virta.security.permissions import Grant, Permission, check_pattern, check_who, parse_verbs

    grant = Grant(verbs=parse_verbs(verbs), topics=check_pattern(topics))
    return Permission(who=check_who(who), grant=grant, denies=denies)
