package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Checks implements the switch driver's checks of the databases.
type Checks struct {
	// Servers returns the registered servers and applications.
	Servers     func(ctx context.Context) ([]upgradestate.ServerState, error)
	Collections *collections.Maintainer
	Prover      *Prover
	// Lives returns an error if a version's database is older than its known state, or if that
	// cannot be determined; nil: no check.
	Lives func(ctx context.Context, versions ...string) error
}

var _ switchover.Checks = Checks{}

// BeforeSwitch checks the target's indexes, because an application may have created some on the
// source after they were copied. It also checks that the names known to applications are free, that
// every server can follow, and that the rollback is proved.
func (c Checks) BeforeSwitch(ctx context.Context, d upgradestate.Deployment) []error {
	// Run all checks, so that an operator sees every blocker at once.
	var errs []error
	target := upgradestate.BlockPlace{Version: d.Upgrade.TargetVersion}
	for _, err := range []error{
		c.lateServers(ctx, d),
		c.preparing(ctx, d),
		upgradestate.Blocked(upgradestate.BlockIndexes, target, c.Collections.CheckIndexes(ctx, d)),
		upgradestate.Blocked(upgradestate.BlockNames, target, c.Collections.CheckNames(ctx, d, d.Upgrade.TargetVersion)),
		upgradestate.Blocked(upgradestate.BlockProof, upgradestate.BlockPlace{Version: d.CurrentVersion}, c.Prover.blocks(d)),
	} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if c.Lives != nil {
		if err := c.Lives(ctx, d.CurrentVersion, d.Upgrade.TargetVersion); err != nil {
			errs = append(errs, upgradestate.Blocked(upgradestate.BlockIdentity, upgradestate.BlockPlace{}, err))
		}
	}
	return errs
}

// lateServers checks that every server can follow. A server may have registered after the upgrade
// began.
func (c Checks) lateServers(ctx context.Context, d upgradestate.Deployment) error {
	servers, err := c.Servers(ctx)
	if err != nil {
		return upgradestate.Blocked(upgradestate.BlockServers, upgradestate.BlockPlace{}, err)
	}
	// Check all servers together first, because that text covers each of them.
	late := upgradestate.LateServers(servers, d.Upgrade.TargetVersion)
	if late == "" {
		return nil
	}
	var at upgradestate.BlockPlace // the text names all of them
	for _, s := range servers {
		if upgradestate.LateServers([]upgradestate.ServerState{s}, d.Upgrade.TargetVersion) != "" {
			at.Server = s.ID
			break
		}
	}
	return upgradestate.Blocked(upgradestate.BlockServers, at, errors.New(late))
}

// preparing checks that no server still prepares to serve the target. A server stops preparing after
// a limit of its own, so none keeps the switch waiting for ever.
func (c Checks) preparing(ctx context.Context, d upgradestate.Deployment) error {
	servers, err := c.Servers(ctx)
	if err != nil {
		return nil //nolint:nilerr // lateServers reports it
	}
	text, at := upgradestate.PreparingServers(servers, d.Upgrade.TargetVersion)
	if text == "" {
		return nil
	}
	return upgradestate.Blocked(upgradestate.BlockPreparing, upgradestate.BlockPlace{Version: d.Upgrade.TargetVersion, Server: at}, errors.New(text))
}

var _ switchover.Preparer = Checks{}

// PrepareSwitch stops TTL indexes, so that no record expires during the switch, and moves of chunks,
// so that no fence waits for one.
func (c Checks) PrepareSwitch(ctx context.Context, d upgradestate.Deployment) error {
	if err := c.Collections.StopExpiry(ctx, d); err != nil {
		return err
	}
	return c.Collections.PinChunks(ctx, d)
}

// BeforeSeal repeats the checks whose subject may have changed since the switch began. A database
// without an answer, or a change in progress, must not end the upgrade: the error wraps
// switchover.ErrPasses.
func (c Checks) BeforeSeal(ctx context.Context, d upgradestate.Deployment) error {
	var names, shapes error
	// Run both checks at once, because clients' writes wait for them.
	var g sync.WaitGroup
	g.Go(func() { names = c.Collections.CheckNames(ctx, d, d.Upgrade.TargetVersion) })
	g.Go(func() { shapes = c.Collections.CheckSealed(ctx, d) })
	g.Wait()
	err := cmp.Or(names, shapes)
	// The attempt ends, and controllers follow the new collection before the next one. A collection
	// that is gone or has another identity was replaced, too: a fence of class validator stops
	// neither. If there is nothing to follow, no shard is ready again and no next attempt begins.
	if replaced := (*record.ReplacedError)(nil); errors.As(err, &replaced) {
		return fmt.Errorf("a collection was replaced during the switch: %w (%w)", replaced, switchover.ErrPasses)
	}
	if errors.Is(err, record.ErrNotFound) {
		return fmt.Errorf("a collection was replaced during the switch: %w (%w)", err, switchover.ErrPasses)
	}
	if errors.Is(err, collections.ErrUnanswered) || errors.Is(err, collections.ErrChanged) {
		err = fmt.Errorf("%w (%w)", err, switchover.ErrPasses)
	}
	return err
}

// wires checks the connections to etcd and the databases: unencrypted ones, and those that end with
// one machine.
func (p *plan) wires(context.Context) error {
	switch etcd := p.Settings.Coordination; {
	case etcd.Embedded:
		p.warn("etcd", "", "it is embedded in a process on this machine, and serves only this machine: while it is down no upgrade can begin, switch or be aborted. For more machines run an etcd of three members and set etcd.endpoints")
	case len(etcd.Plaintext) > 0:
		p.warn("etcd", strings.Join(etcd.Plaintext, ","), "plaintext to another machine: anyone on the network path can read the password and all data: use https:// and etcd.caFile")
	default:
		p.ok("etcd", strings.Join(etcd.Endpoints, ","), "uses TLS, or is on this machine")
	}
	for _, v := range []string{p.dir.From(), p.dir.To()} {
		// A warning, not a failure: the network between the machines may be trusted.
		if far := p.Settings.Plaintext[v]; len(far) > 0 {
			p.warn("server", v, "plaintext to another machine (%s): anyone on the network path can read the records: add tls=true to the connection string", strings.Join(far, ","))
		}
	}
	return nil
}
