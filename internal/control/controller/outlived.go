package controller

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
)

// A controller keeps data from etcd in memory. If etcd is emptied, restored or replaced, it answers
// normally: it grants leases, and locks are free. The controller would then own shards there and
// work from a record that no other process has.

// checkRecordEvery is the usual interval at which a controller checks that etcd still has its record.
const checkRecordEvery = time.Second

const (
	outlivedRepair = "restore etcd or correct it in the configuration, or stop all controllers and run 'dbcontroller recover'"
	outlivedGone   = "etcd no longer has the deployment that this controller works for: it was emptied, or another etcd answers: " + outlivedRepair
	outlivedOlder  = "etcd has an older state of the deployment than this controller has read: it was restored, or another etcd answers: " + outlivedRepair
	outlivedOther  = "etcd has another deployment of this name than the one that this controller works for: it was recovered or set up anew, or another etcd answers: start this controller again"
)

// recordWatch notices that etcd no longer has the record that this controller works for.
type recordWatch struct {
	deployment  *deployment.Store
	incarnation string // of the deployment in etcd
	// every is the interval of the looks: that of the beats, whose commits save most of them.
	every time.Duration
	log   *zap.Logger
}

// outlived returns an error when etcd no longer has the record with which the controller began.
func (w recordWatch) outlived(ctx context.Context) error {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	var seen int64                  // highest revision of the record so far
	var confirmed uint64            // number of the last confirmation that counted
	var failing reconcile.Complaint // etcd may be away for long: log each problem once
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		// The beats of the leader compare the same, in their commit.
		if c := w.deployment.Confirmed(); c.Number != confirmed && c.Incarnation == w.incarnation && c.Revision >= seen {
			confirmed, seen = c.Number, c.Revision
			failing.Over()
			continue
		}
		revision, text, err := w.lookForRecord(ctx, seen)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case text != "":
			return &identity.MismatchError{Found: text}
		case err == nil:
			seen = revision
			failing.Over()
		case failing.News(err):
			w.log.Warn("cannot read from etcd whether it has the deployment", zap.Error(err))
		}
	}
}

// lookForRecord describes the fault of the record in etcd, or returns "".
func (w recordWatch) lookForRecord(ctx context.Context, seen int64) (revision int64, wrong string, err error) {
	bounded, cancel := context.WithTimeout(ctx, 10*checkRecordEvery)
	defer cancel()
	d, err := w.deployment.Get(bounded)
	switch {
	case errors.Is(err, deployment.ErrNotFound):
		return 0, outlivedGone, nil
	case err != nil:
		return 0, "", err
	case d.Revision < seen:
		return 0, outlivedOlder, nil
	}
	// The incarnation is unique to each created record. It reveals a new record with the same name.
	_, incarnation, err := w.deployment.LoadBeat(bounded, d.CurrentVersion)
	if err != nil || incarnation == w.incarnation {
		return d.Revision, "", err
	}
	// etcd may have been emptied since the first read. Then there is no other record.
	switch _, err := w.deployment.Get(bounded); {
	case errors.Is(err, deployment.ErrNotFound):
		return 0, outlivedGone, nil
	case err != nil:
		return 0, "", err
	}
	return 0, outlivedOther, nil
}
