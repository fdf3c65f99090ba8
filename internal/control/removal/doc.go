// Package removal removes a deployment, or kinds that its configuration no longer has, with all that
// controllers have stored about it: their data in the databases of its versions, and its keys in the
// coordination store.
//
// # Order
//
//  1. Check looks, and refuses while something of the deployment is still in use: a process, an
//     upgrade, a fence.
//  2. deployment.Store.BeginRemoval stores a removal in place of the record. From then on no process
//     begins to work on the deployment. It looks for processes once more, and gives up if one came
//     in between.
//  3. Do removes what the databases hold, one version after the other, then the other keys, and the
//     record last. The record says where everything is, so after a crash the same call goes on.
//
// # What stays
//
// Records of clients and applications stay, with their collections, under whatever name they have
// now: those of kinds, those that fences have set aside, and by default also the copies in versions
// that no client has used.
//
// It is not for users and may change with any version.
package removal
