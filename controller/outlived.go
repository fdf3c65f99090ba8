package controller

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/deployment"
	"dbcontroller.dev/identity"
	"dbcontroller.dev/internal/reconcile"
)

// A controller keeps in memory what it has read of etcd. An etcd that is emptied, restored or
// exchanged under it answers as if nothing had happened: leases are granted, locks are free. The
// controller would own shards there and work by a record that nobody else has.

// checkRecordEvery is how often a controller checks that etcd still has its record.
const checkRecordEvery = time.Second

const (
	outlivedRepair = "restore etcd or correct it in the configuration, or stop all controllers and run 'dbcontroller recover'"
	outlivedGone   = "etcd no longer has the deployment that this controller works for: it was emptied, or another one answers: " + outlivedRepair
	outlivedOlder  = "etcd has an older state of the deployment than this controller has read: it was restored, or another one answers: " + outlivedRepair
	outlivedOther  = "etcd has another deployment of this name than the one that this controller works for: it was recovered or set up anew, or another etcd answers: start this controller again"
)

// outlived ends the controller, with an error, when etcd no longer has the record that it began with.
func (a *App) outlived(ctx context.Context) error {
	tick := time.NewTicker(checkRecordEvery)
	defer tick.Stop()
	var seen int64                  // highest revision of the record
	var failing reconcile.Complaint // etcd may be away for long
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		revision, text, err := a.lookForRecord(ctx, seen)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case text != "":
			return &identity.MismatchError{Found: text}
		case err == nil:
			seen = revision
			failing.Over()
		case failing.News(err):
			a.log.Warn("etcd does not answer whether it has the deployment", zap.Error(err))
		}
	}
}

// lookForRecord returns what is wrong with the record in etcd; "" is nothing.
func (a *App) lookForRecord(ctx context.Context, seen int64) (revision int64, wrong string, err error) {
	bounded, cancel := context.WithTimeout(ctx, 10*checkRecordEvery)
	defer cancel()
	d, err := a.deployment.Get(bounded)
	switch {
	case errors.Is(err, deployment.ErrNotFound):
		return 0, outlivedGone, nil
	case err != nil:
		return 0, "", err
	case d.Revision < seen:
		return 0, outlivedOlder, nil
	}
	_, incarnation, err := a.deployment.LoadBeat(bounded, d.CurrentVersion)
	if err == nil && incarnation != a.incarnation {
		return 0, outlivedOther, nil
	}
	return d.Revision, "", err
}

// claim notes in a version's database that controllers with this etcd use it. It refuses one that
// controllers with another etcd use.
func (a *App) claim(ctx context.Context, version string, use func(*identity.Pulse, context.Context) error) error {
	if a.opts.reads || a.opts.alone {
		return nil
	}
	err := use(a.pulses.get(a, version, a.namespaces[version]), ctx)
	var restored *identity.RestoredError
	if errors.As(err, &restored) {
		return nil // the next beat deals with it
	}
	return err
}

// elsewhere reports whether an error says that another etcd is in use.
func elsewhere(err error) bool {
	var e *identity.ElsewhereError
	return errors.As(err, &e)
}
