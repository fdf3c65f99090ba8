// Package forward sends calls about a deployment to the controllers that run it. It stands in front of the
// API of a controller process (package api).
//
// # Where calls go
//
// A process answers about the deployments that it runs. Controllers with the same coordination store
// announce their addresses there (deployment.Addressed), and calls about their deployments go to them.
// Deployments of other regions, which have coordination stores of their own, are found by asking the
// controllers that the configuration names. Calls of applications, and those about rollouts, are never
// forwarded.
//
// # Guarantees
//
//   - A caller gets no right by a forwarded call. This process has checked the caller's role before. The
//     caller's own token goes along, and the receiver checks it like every token. For a caller with a
//     certificate this process shows its own. For a caller without a proof it shows nothing.
//   - A token goes only over TLS, or to this machine. An announced address gets a token, or sees the
//     certificate of this process, only if the configuration vouches for it: whoever can write the
//     coordination store can announce any address.
//   - A forwarded call goes no further, so there are no loops.
//   - A call ends when its caller goes, and also when its controllers are not announced any more.
//   - A call that may have had an effect is not sent again. Its error says that the outcome is unknown.
//   - Waits for other regions are bounded, and a region that is away is named in lists.
//
// # What it does not own
//
// Package access checks the callers on both sides. Package api answers.
//
// Begin to read at Handler, then find.go and announced.go.
//
// It is not for users and may change with any version.
package forward
