package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"dbcontroller.dev/collections"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/upgradestate"
)

// Checks are what the switch driver asks about the databases.
type Checks struct {
	// Servers returns the servers and applications that are registered now.
	Servers     func(ctx context.Context) ([]upgradestate.ServerState, error)
	Collections *collections.Maintainer
	Prover      *Prover
	// Lives returns an error when the database of a version is older than was known, or is not
	// known to be as it was; nil: nobody looks.
	Lives func(ctx context.Context, versions ...string) error
}

var _ switchover.Checks = Checks{}

// BeforeSwitch checks that the target has its indexes, for an application may have made some
// on the source since they were carried over, that the names which applications know are
// free, and wants the rollback proved.
func (c Checks) BeforeSwitch(ctx context.Context, d upgradestate.Deployment) []error {
	var errs []error
	target := upgradestate.BlockPlace{Version: d.Upgrade.TargetVersion}
	for _, err := range []error{
		c.lateServers(ctx, d),
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

// lateServers checks that every server can follow: one may have come after the upgrade began.
func (c Checks) lateServers(ctx context.Context, d upgradestate.Deployment) error {
	servers, err := c.Servers(ctx)
	if err != nil {
		return upgradestate.Blocked(upgradestate.BlockServers, upgradestate.BlockPlace{}, err)
	}
	late := upgradestate.LateServers(servers, d.Upgrade.TargetVersion)
	if late == "" {
		return nil
	}
	var at upgradestate.BlockPlace // the text names them all
	for _, s := range servers {
		if upgradestate.LateServers([]upgradestate.ServerState{s}, d.Upgrade.TargetVersion) != "" {
			at.Server = s.ID
			break
		}
	}
	return upgradestate.Blocked(upgradestate.BlockServers, at, errors.New(late))
}

var _ switchover.Preparer = Checks{}

// PrepareSwitch stops TTL indexes.
func (c Checks) PrepareSwitch(ctx context.Context, d upgradestate.Deployment) error {
	return c.Collections.StopExpiry(ctx, d)
}

// BeforeSeal checks again what somebody may have changed since the switch began. A database
// that cannot be asked now must not end the upgrade: it passes, as a change that is followed does.
func (c Checks) BeforeSeal(ctx context.Context, d upgradestate.Deployment) error {
	var names, shapes error
	var g sync.WaitGroup // writes are held, so that neither look waits for the other
	g.Go(func() { names = c.Collections.CheckNames(ctx, d, d.Upgrade.TargetVersion) })
	g.Go(func() { shapes = c.Collections.CheckSealed(ctx, d) })
	g.Wait()
	err := cmp.Or(names, shapes)
	if errors.Is(err, collections.ErrUnanswered) || errors.Is(err, collections.ErrChanged) {
		err = fmt.Errorf("%w (%w)", err, switchover.ErrPasses)
	}
	return err
}

// wires looks at how this controller reaches etcd and the databases: what others can read
// on the way, and what one machine's end takes along.
func (p *plan) wires(context.Context) error {
	switch etcd := p.Settings.Coordination; {
	case etcd.Embedded:
		p.warn("etcd", "", "it is embedded in a process of this machine, and for this machine alone: while it is away no upgrade can begin, switch or be aborted. For more machines run an etcd of three members and name it in etcd.endpoints")
	case len(etcd.Plaintext) > 0:
		p.warn("etcd", strings.Join(etcd.Plaintext, ","), "plaintext to another machine: anyone who can listen there reads the password and all that is stored: use https:// and etcd.caFile")
	default:
		p.ok("etcd", strings.Join(etcd.Endpoints, ","), "reached by TLS, or on this machine")
	}
	for _, v := range []string{p.dir.From(), p.dir.To()} {
		if far := p.Settings.Plaintext[v]; len(far) > 0 {
			p.warn("server", v, "plaintext to another machine (%s): anyone who can listen there reads the records: add tls=true to the connection string", strings.Join(far, ","))
		}
	}
	return nil
}
