package sealed

import (
	"context"
	"slices"

	"dbcontroller.dev/record"
)

// Hold has the database itself refuse, from its return on, what is under another key than the
// State names, from any process and however late; it takes what is under one of also, too, which
// the State is about to name.
//
// Others may change the State meanwhile, and hold the database to what they made of it: who slept
// on the way there must not undo that. So the State is looked at again afterwards, by a login that
// has just written to the primary of now, and held to if it is another one.
func (n *Namespace) Hold(ctx context.Context, toks []record.Token, also ...string) error {
	for {
		st, err := n.sealer.look(ctx, 0)
		if err != nil {
			return err
		}
		if err := n.Require(ctx, toks, wanted(append(slices.Clone(also), st.Key)...)); err != nil {
			return err
		}
		now, err := n.sealer.look(ctx, 0)
		if err != nil || now.Key == st.Key {
			return err
		}
	}
}
