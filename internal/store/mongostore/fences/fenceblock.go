package fences

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// The write block (error 371) stops user writes to a whole cluster. It is for a cluster that serves
// only the source. Users with the privilege bypassWriteBlockingMode can still write. The controller
// needs that for its marks and for reverse sync. Without access control nobody has the privilege,
// so this class requires access control.

// Values of serverStatus.repl.userWriteBlockMode.
const (
	blockOff = 1
	blockOn  = 2
)

func (n *Fences) probeWriteBlock(ctx context.Context) error {
	refused := &record.UnsupportedError{What: "fence class writeBlock in " + n.Name}
	mode, err := n.writeBlockMode(ctx)
	// A busy server is no reason to choose another class.
	if err != nil {
		if conn.WorthRepeating(err) {
			return err
		}
		refused.Reason = "serverStatus is needed, role clusterMonitor: " + err.Error()
		return refused
	}
	if mode != blockOff {
		refused.Reason = "the cluster blocks user writes already, or cannot block them; controllers do not remove a block of others"
		return refused
	}
	var status struct {
		Info struct {
			Privileges []struct {
				Actions []string `bson:"actions"`
			} `bson:"authenticatedUserPrivileges"`
		} `bson:"authInfo"`
	}
	err = conn.Decode(n.Admin().RunCommand(ctx, bson.D{{Key: "connectionStatus", Value: 1}, {Key: "showPrivileges", Value: true}}), &status)
	if err != nil {
		return err
	}
	may := map[string]bool{}
	for _, p := range status.Info.Privileges {
		for _, a := range p.Actions {
			may[a] = true
		}
	}
	switch {
	// anyAction includes both privileges.
	case may["anyAction"]:
	case !may["setUserWriteBlockMode"]:
		refused.Reason = "grant the privilege setUserWriteBlockMode on the cluster"
		return refused
	case !may["bypassWriteBlockingMode"]:
		refused.Reason = "grant the privilege bypassWriteBlockingMode, or the controller locks itself out"
		return refused
	}
	return nil
}

func (n *Fences) writeBlockMode(ctx context.Context) (int64, error) {
	raw, err := n.Admin().RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Raw()
	if err != nil {
		return 0, err
	}
	mode, _ := rawdoc.Lookup(raw, "repl", "userWriteBlockMode").AsInt64OK()
	return mode, nil
}

func (n *Fences) setWriteBlock(ctx context.Context, on bool) error {
	// The server replicates the state to a majority itself and accepts no write concern.
	return n.Admin().RunCommand(ctx, bson.D{{Key: "setUserWriteBlockMode", Value: 1}, {Key: "global", Value: on}}).Err()
}

func (n *Fences) fenceWriteBlock(ctx context.Context, f record.Fence) error {
	set := func(ctx context.Context) error {
		if f.Standing {
			mode, err := n.writeBlockMode(ctx)
			if err != nil {
				return err
			}
			if mode != blockOn {
				return conn.Permanent(record.ErrLapsed)
			}
		}
		return n.setWriteBlock(ctx, true)
	}
	confirm := func(ctx context.Context) error {
		// Without data changes, the mark is the only event in the change stream.
		if err := n.Mark(ctx, f); err != nil {
			return err
		}
		// Another controller may have lifted the block since.
		mode, err := n.writeBlockMode(ctx)
		if err != nil {
			return err
		}
		if mode != blockOn {
			return errors.New("the write block was missing when the controller confirmed it")
		}
		return nil
	}
	return n.setUnlessEnded(ctx, f, set, confirm, n.liftLateBlock)
}

// liftLateBlock lifts a block that came after the end of its fence, unless another fence needs it.
func (n *Fences) liftLateBlock(ctx context.Context) error {
	var marks []string
	err := n.DB.Collection(conn.MarksCollection).Distinct(ctx, "_id", bson.D{{Key: conn.MarkBlocked, Value: bson.D{{Key: "$gt", Value: 0}}}}).Decode(&marks)
	if err != nil {
		return fmt.Errorf("look for other write blocks: %w", err)
	}
	ended, err := n.Unfenced(ctx, marks)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(marks, func(to string) bool { return !slices.Contains(ended, to) }) {
		return nil
	}
	return n.setWriteBlock(ctx, false)
}

func (n *Fences) unfenceWriteBlock(ctx context.Context, f record.Fence) error {
	return n.UntilDone(ctx, n.Name+"."+f.Token.Name, func(ctx context.Context) error {
		// Note the end first: a late fence must not block the cluster again.
		if err := n.noteUnfenced(ctx, f.Token, f.To); err != nil {
			return err
		}
		if err := n.endBefore(ctx, f); err != nil {
			return err
		}
		// Send it even if the block is off. The server makes one such change at a time, so this one
		// waits behind a block that is being set.
		_, err := n.unblocks.Ask(ctx, struct{}{})
		return err
	})
}

// liftWriteBlock lifts the block of the cluster for the fences of all kinds at once.
func (n *Fences) liftWriteBlock(ctx context.Context, _ []struct{}) (struct{}, error) {
	return struct{}{}, n.setWriteBlock(ctx, false)
}
