// Package task is the part of the sample BBS for tasks: work that runs once, on one cell. Both
// versions of the API have the same tasks. v2 has times as timestamps, where v1 has milliseconds,
// and it counts rejections, which v1 does not know. A lens expresses that (tasks.yaml). So v1's own
// handlers serve v1 over v2 data, through an adapted store.
//
//	v1  tasks  <guid>  {state, cell_id, created_ms, updated_ms, completed_ms, callback_attempts, ...}
//	v2  tasks  <guid>  {state, cell_id, create_time, update_time, complete_time, callback_attempts, rejection_count, ...}
//
// Task has the states and their rules: each is a function that refuses a call that does not fit.
// Each write is conditional on the state that the rule has seen, so concurrent calls never mix.
//
// One controller (controller.go), a background controller with a leader, does what time and cells
// require. Decide chooses it: a task of a lost cell fails, a task that nobody starts fails, a
// completed task expires, and a completed task with a callback URL is posted to it.
//
// # The completion callback
//
// The controller first writes RESOLVING, with the number of the attempt. Then it posts the task.
// After an answer 2xx or 4xx it deletes the task: a callback that refuses a task would refuse it again.
// After any other answer, or none, it writes COMPLETED, and posts again after a growing pause, until
// the task expires. A process that dies in between leaves a RESOLVING task, which becomes COMPLETED
// again after a while. So a callback gets each task at least once, and never again after its answer is
// stored. A switch ends the controller's run, and its later writes are refused. The other version's
// controller continues from its own data.
//
// The URL is the client's, so the post is bounded: http and https only, no redirects, no proxy of
// the environment, limits of time, of bytes of the answer, and of posts at the same time.
//
// # Cells
//
// If a task is cancelled, the controller asks its cell once to stop it (package outbound). If that call
// is lost, the cell finds out when it polls.
//
// It is not for users and may change with any version. Begin to read at Task and Decide.
package task
