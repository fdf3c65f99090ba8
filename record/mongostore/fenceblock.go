package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// The write block of a whole cluster (371), for a cluster that serves nothing but the
// source. Users with the privilege bypassWriteBlockingMode still write, which the
// controller needs to go on with its marks and with reverse sync; without access control
// nobody has it, so the class asks for access control.

// Values of serverStatus.repl.userWriteBlockMode.
const (
	blockOff = 1
	blockOn  = 2
)

func (n *Namespace) probeWriteBlock(ctx context.Context) error {
	refused := &record.UnsupportedError{What: "fence class writeBlock in " + n.name}
	mode, err := n.writeBlockMode(ctx)
	if err != nil {
		if worthRepeating(err) {
			return err
		}
		refused.Reason = "serverStatus is needed, role clusterMonitor: " + err.Error()
		return refused
	}
	if mode != blockOff {
		refused.Reason = "the cluster blocks user writes already, or cannot: it is not for us to remove"
		return refused
	}
	var status struct {
		Info struct {
			Privileges []struct {
				Actions []string `bson:"actions"`
			} `bson:"authenticatedUserPrivileges"`
		} `bson:"authInfo"`
	}
	err = n.admin().RunCommand(ctx, bson.D{{Key: "connectionStatus", Value: 1}, {Key: "showPrivileges", Value: true}}).Decode(&status)
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

func (n *Namespace) writeBlockMode(ctx context.Context) (int64, error) {
	raw, err := n.admin().RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Raw()
	if err != nil {
		return 0, err
	}
	mode, _ := raw.Lookup("repl", "userWriteBlockMode").AsInt64OK()
	return mode, nil
}

func (n *Namespace) setWriteBlock(ctx context.Context, on bool) error {
	// The server replicates the state to a majority by itself and takes no concern.
	return n.admin().RunCommand(ctx, bson.D{{Key: "setUserWriteBlockMode", Value: 1}, {Key: "global", Value: on}}).Err()
}

func (n *Namespace) fenceWriteBlock(ctx context.Context, f record.Fence) error {
	return n.untilDone(ctx, n.name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.refuseUnfenced(ctx, f); err != nil {
			return err
		}
		if err := n.setWriteBlock(ctx, true); err != nil {
			return err
		}
		if err := n.mark(ctx, f); err != nil {
			return err
		}
		mode, err := n.writeBlockMode(ctx)
		if err != nil {
			return err
		}
		if mode != blockOn {
			return errors.New("the write block was no longer there when it was confirmed")
		}
		return nil
	})
}

func (n *Namespace) unfenceWriteBlock(ctx context.Context, f record.Fence) error {
	return n.untilDone(ctx, n.name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.noteUnfenced(ctx, f.Token, f.To); err != nil {
			return err
		}
		mode, err := n.writeBlockMode(ctx)
		if err != nil || mode == blockOff {
			return err
		}
		return n.setWriteBlock(ctx, false)
	})
}
