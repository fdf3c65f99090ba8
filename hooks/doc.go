// Package hooks tells other systems what happens to a deployment: by requests to an address,
// or by a command.
//
// Events are made of the history in the deployment's record, which is written with what it
// tells of, so that none is lost however the controllers fail; of what is parked, which is
// not in the record, a count is looked at now and then. Which events were made and which of
// them were delivered is kept in the coordination store and only ever changed by comparing
// it, so that each event is made once, with one id, and the next leader goes on where the
// one before stopped.
//
// Each hook gets all events that it wants, in their order, at least once: what is not
// acknowledged in time is sent again with longer and longer pauses, and those behind it wait.
// After a hook's GiveUp an event is left out. A hook that hangs holds up itself alone; nothing
// of an upgrade waits for one.
//
// It is not for users and may change with any version.
//
// The package does not decide who leads (Run is called where one does), nor what is
// configured.
package hooks
