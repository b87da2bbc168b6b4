"""Names and types of fields: of track events (Perfetto's, and simple ones of Chrome) and of memory packets.

Source: Perfetto's published protos/perfetto/trace/track_event/*.proto, ps/process_stats.proto, profiling/smaps.proto
and memory_graph.proto, and Chrome's chrome_track_event.proto. A message (`:`) lists the number, name and type of its
fields (`*`: repeated), an enum (`=`) the number and name of its values.
"""

from __future__ import annotations

from typing import Final

TABLE: Final = """
TrackEvent: 24 cc_scheduler_state ChromeCompositorSchedulerState, 25 chrome_user_event ChromeUserEvent,
    26 chrome_keyed_service ChromeKeyedService, 27 chrome_legacy_ipc ChromeLegacyIpc,
    28 chrome_histogram_sample ChromeHistogramSample, 29 chrome_latency_info ChromeLatencyInfo,
    32 chrome_frame_reporter ChromeFrameReporter, 35 chrome_message_pump ChromeMessagePump,
    38 chrome_mojo_event_info ChromeMojoEventInfo, 39 chrome_application_state_info ChromeApplicationStateInfo,
    40 chrome_renderer_scheduler_state ChromeRendererSchedulerState,
    41 chrome_window_handle_event_info ChromeWindowHandleEventInfo,
    43 chrome_content_settings_event_info ChromeContentSettingsEventInfo,
    49 chrome_active_processes ChromeActiveProcesses, 50 screenshot Screenshot, 55 callstack TrackEvent.Callstack,
    57 callstack_weight double, 1000 chrome_app_state ChromeAppState,
    1001 chrome_memory_pressure_notification ChromeMemoryPressureNotification,
    1002 chrome_task_annotator ChromeTaskAnnotator, 1003 chrome_browser_context ChromeBrowserContext,
    1004 chrome_profile_destroyer ChromeProfileDestroyer,
    1005 chrome_task_posted_to_disabled_queue ChromeTaskPostedToDisabledQueue, 1006 chrome_raster_task ChromeRasterTask,
    1007 chrome_message_pump_for_ui ChromeMessagePumpForUI, 1008 render_frame_impl_deletion RenderFrameImplDeletion,
    1011 chrome_hashed_performance_mark ChromeHashedPerformanceMark, 1012 render_process_host RenderProcessHost,
    1013 render_process_host_cleanup RenderProcessHostCleanup,
    1014 render_process_host_listener_changed RenderProcessHostListener,
    1015 child_process_launcher_priority ChildProcessLauncherPriority, 1016 resource_bundle ResourceBundle,
    1017 chrome_web_app_bad_navigate ChromeWebAppBadNavigate, 1018 chrome_extension_id ChromeExtensionId,
    1039 sql_diagnostics ChromeSqlDiagnostics, 1042 active_processes ActiveProcesses,
    3000 gpu_correlation GpuCorrelation
GpuCorrelation: 1 render_stage_submission_event_ids uint*, 2 render_stage_wait_event_ids uint*
TrackEvent.Callstack: 1 frames TrackEvent.Callstack.Frame*
TrackEvent.Callstack.Frame: 1 function_name string, 2 source_file string, 3 line_number uint
ChromeCompositorSchedulerState: 1 state_machine ChromeCompositorStateMachine, 2 observing_begin_frame_source bool,
    3 begin_impl_frame_deadline_task bool, 4 pending_begin_frame_task bool,
    5 skipped_last_frame_missed_exceeded_deadline bool, 7 inside_action ChromeCompositorSchedulerAction,
    8 deadline_mode ChromeCompositorSchedulerState.BeginImplFrameDeadlineMode, 9 deadline_us int,
    10 deadline_scheduled_at_us int, 11 now_us int, 12 now_to_deadline_delta_us int,
    13 now_to_deadline_scheduled_at_delta_us int, 14 begin_impl_frame_args BeginImplFrameArgs,
    15 begin_frame_observer_state BeginFrameObserverState, 16 begin_frame_source_state BeginFrameSourceState,
    17 compositor_timing_history CompositorTimingHistory
ChromeCompositorStateMachine: 1 major_state ChromeCompositorStateMachine.MajorState,
    2 minor_state ChromeCompositorStateMachine.MinorState
ChromeCompositorStateMachine.MajorState: 1 next_action ChromeCompositorSchedulerAction,
    2 begin_impl_frame_state ChromeCompositorStateMachine.MajorState.BeginImplFrameState,
    3 begin_main_frame_state ChromeCompositorStateMachine.MajorState.BeginMainFrameState,
    4 layer_tree_frame_sink_state ChromeCompositorStateMachine.MajorState.LayerTreeFrameSinkState,
    5 forced_redraw_state ChromeCompositorStateMachine.MajorState.ForcedRedrawOnTimeoutState
ChromeCompositorStateMachine.MinorState: 1 commit_count int, 2 current_frame_number int,
    3 last_frame_number_submit_performed int, 4 last_frame_number_draw_performed int,
    5 last_frame_number_begin_main_frame_sent int, 6 did_draw bool, 7 did_send_begin_main_frame_for_current_frame bool,
    8 did_notify_begin_main_frame_not_expected_until bool, 9 did_notify_begin_main_frame_not_expected_soon bool,
    10 wants_begin_main_frame_not_expected bool, 11 did_commit_during_frame bool,
    12 did_invalidate_layer_tree_frame_sink bool, 13 did_perform_impl_side_invalidaion bool, 14 did_prepare_tiles bool,
    15 consecutive_checkerboard_animations int, 16 pending_submit_frames int,
    17 submit_frames_with_current_layer_tree_frame_sink int, 18 needs_redraw bool, 19 needs_prepare_tiles bool,
    20 needs_begin_main_frame bool, 21 needs_one_begin_impl_frame bool, 22 visible bool,
    23 begin_frame_source_paused bool, 24 can_draw bool, 25 resourceless_draw bool, 26 has_pending_tree bool,
    27 pending_tree_is_ready_for_activation bool, 28 active_tree_needs_first_draw bool,
    29 active_tree_is_ready_to_draw bool, 30 did_create_and_initialize_first_layer_tree_frame_sink bool,
    31 tree_priority ChromeCompositorStateMachine.MinorState.TreePriority,
    32 scroll_handler_state ChromeCompositorStateMachine.MinorState.ScrollHandlerState,
    33 critical_begin_main_frame_to_activate_is_fast bool, 34 main_thread_missed_last_deadline bool,
    36 video_needs_begin_frames bool, 37 defer_begin_main_frame bool, 38 last_commit_had_no_updates bool,
    39 did_draw_in_last_frame bool, 40 did_submit_in_last_frame bool, 41 needs_impl_side_invalidation bool,
    42 current_pending_tree_is_impl_side bool, 43 previous_pending_tree_was_impl_side bool,
    44 processing_animation_worklets_for_active_tree bool, 45 processing_animation_worklets_for_pending_tree bool,
    46 processing_paint_worklets_for_pending_tree bool
BeginImplFrameArgs: 1 updated_at_us int, 2 finished_at_us int, 3 state BeginImplFrameArgs.State,
    4 current_args BeginFrameArgs, 5 last_args BeginFrameArgs, 6 timestamps_in_us BeginImplFrameArgs.TimestampsInUs
BeginFrameArgs: 1 type BeginFrameArgs.BeginFrameArgsType, 2 source_id uint, 3 sequence_number uint, 4 frame_time_us int,
    5 deadline_us int, 6 interval_delta_us int, 7 on_critical_path bool, 8 animate_only bool,
    9 source_location_iid uint, 10 source_location SourceLocation, 12 frames_throttled_since_last int
SourceLocation: 1 iid uint, 2 file_name string, 3 function_name string, 4 line_number uint
BeginImplFrameArgs.TimestampsInUs: 1 interval_delta int, 2 now_to_deadline_delta int, 3 frame_time_to_now_delta int,
    4 frame_time_to_deadline_delta int, 5 now int, 6 frame_time int, 7 deadline int
BeginFrameObserverState: 1 dropped_begin_frame_args int, 2 last_begin_frame_args BeginFrameArgs
BeginFrameSourceState: 1 source_id uint, 2 paused bool, 3 num_observers uint, 4 last_begin_frame_args BeginFrameArgs
CompositorTimingHistory: 1 begin_main_frame_queue_critical_estimate_delta_us int,
    2 begin_main_frame_queue_not_critical_estimate_delta_us int,
    3 begin_main_frame_start_to_ready_to_commit_estimate_delta_us int,
    4 commit_to_ready_to_activate_estimate_delta_us int, 5 prepare_tiles_estimate_delta_us int,
    6 activate_estimate_delta_us int, 7 draw_estimate_delta_us int
ChromeUserEvent: 1 action string, 2 action_hash uint
ChromeKeyedService: 1 name string
ChromeLegacyIpc: 1 message_class ChromeLegacyIpc.MessageClass, 2 message_line uint
ChromeHistogramSample: 1 name_hash uint, 2 name string, 3 sample int, 4 name_iid uint
ChromeLatencyInfo: 1 trace_id int, 2 step ChromeLatencyInfo.Step, 3 frame_tree_node_id int,
    4 component_info ChromeLatencyInfo.ComponentInfo*, 5 is_coalesced bool, 6 gesture_scroll_id int, 7 touch_id int,
    8 input_type ChromeLatencyInfo.InputType
ChromeLatencyInfo.ComponentInfo: 1 component_type ChromeLatencyInfo.LatencyComponentType, 2 time_us uint
ChromeFrameReporter: 1 state ChromeFrameReporter.State, 2 reason ChromeFrameReporter.FrameDropReason,
    3 frame_source uint, 4 frame_sequence uint, 5 affects_smoothness bool,
    6 scroll_state ChromeFrameReporter.ScrollState, 7 has_main_animation bool, 8 has_compositor_animation bool,
    9 has_smooth_input_main bool, 10 has_missing_content bool, 11 layer_tree_host_id uint, 12 has_high_latency bool,
    13 frame_type ChromeFrameReporter.FrameType, 14 high_latency_contribution_stage string*,
    15 checkerboarded_needs_raster bool, 16 checkerboarded_needs_record bool, 17 surface_frame_trace_id int,
    18 display_trace_id int
ChromeApplicationStateInfo: 1 application_state ChromeApplicationStateInfo.ChromeApplicationState
ChromeRendererSchedulerState: 1 rail_mode ChromeRAILMode, 2 is_backgrounded bool, 3 is_hidden bool
ChromeWindowHandleEventInfo: 1 dpi uint, 2 message_id uint, 3 hwnd_ptr fixed64
ChromeContentSettingsEventInfo: 1 number_of_exceptions uint
ChromeActiveProcesses: 1 pid int*
Screenshot: 1 jpg_image bytes, 2 pam_image bytes, 3 ppm_image bytes
ChromeMessagePump: 1 sent_messages_in_queue bool, 2 io_handler_location_iid uint
ChromeMojoEventInfo: 1 watcher_notify_interface_tag string, 2 ipc_hash uint, 3 mojo_interface_tag string,
    4 mojo_interface_method_iid uint, 5 is_reply bool, 6 payload_size uint, 7 data_num_bytes uint
ChromeCompositorSchedulerAction = 0 CC_SCHEDULER_ACTION_UNSPECIFIED, 1 CC_SCHEDULER_ACTION_NONE,
    2 CC_SCHEDULER_ACTION_SEND_BEGIN_MAIN_FRAME, 3 CC_SCHEDULER_ACTION_COMMIT, 4 CC_SCHEDULER_ACTION_ACTIVATE_SYNC_TREE,
    5 CC_SCHEDULER_ACTION_DRAW_IF_POSSIBLE, 6 CC_SCHEDULER_ACTION_DRAW_FORCED, 7 CC_SCHEDULER_ACTION_DRAW_ABORT,
    8 CC_SCHEDULER_ACTION_BEGIN_LAYER_TREE_FRAME_SINK_CREATION, 9 CC_SCHEDULER_ACTION_PREPARE_TILES,
    10 CC_SCHEDULER_ACTION_INVALIDATE_LAYER_TREE_FRAME_SINK, 11 CC_SCHEDULER_ACTION_PERFORM_IMPL_SIDE_INVALIDATION,
    12 CC_SCHEDULER_ACTION_NOTIFY_BEGIN_MAIN_FRAME_NOT_EXPECTED_UNTIL,
    13 CC_SCHEDULER_ACTION_NOTIFY_BEGIN_MAIN_FRAME_NOT_EXPECTED_SOON
ChromeCompositorStateMachine.MajorState.BeginImplFrameState = 0 BEGIN_IMPL_FRAME_UNSPECIFIED, 1 BEGIN_IMPL_FRAME_IDLE,
    2 BEGIN_IMPL_FRAME_INSIDE_BEGIN_FRAME, 3 BEGIN_IMPL_FRAME_INSIDE_DEADLINE
ChromeCompositorStateMachine.MajorState.BeginMainFrameState = 0 BEGIN_MAIN_FRAME_UNSPECIFIED, 1 BEGIN_MAIN_FRAME_IDLE,
    2 BEGIN_MAIN_FRAME_SENT, 3 BEGIN_MAIN_FRAME_READY_TO_COMMIT
ChromeCompositorStateMachine.MajorState.LayerTreeFrameSinkState = 0 LAYER_TREE_FRAME_UNSPECIFIED,
    1 LAYER_TREE_FRAME_NONE, 2 LAYER_TREE_FRAME_ACTIVE, 3 LAYER_TREE_FRAME_CREATING,
    4 LAYER_TREE_FRAME_WAITING_FOR_FIRST_COMMIT, 5 LAYER_TREE_FRAME_WAITING_FOR_FIRST_ACTIVATION
ChromeCompositorStateMachine.MajorState.ForcedRedrawOnTimeoutState = 0 FORCED_REDRAW_UNSPECIFIED, 1 FORCED_REDRAW_IDLE,
    2 FORCED_REDRAW_WAITING_FOR_COMMIT, 3 FORCED_REDRAW_WAITING_FOR_ACTIVATION, 4 FORCED_REDRAW_WAITING_FOR_DRAW
ChromeCompositorStateMachine.MinorState.TreePriority = 0 TREE_PRIORITY_UNSPECIFIED,
    1 TREE_PRIORITY_SAME_PRIORITY_FOR_BOTH_TREES, 2 TREE_PRIORITY_SMOOTHNESS_TAKES_PRIORITY,
    3 TREE_PRIORITY_NEW_CONTENT_TAKES_PRIORITY
ChromeCompositorStateMachine.MinorState.ScrollHandlerState = 0 SCROLL_HANDLER_UNSPECIFIED,
    1 SCROLL_AFFECTS_SCROLL_HANDLER, 2 SCROLL_DOES_NOT_AFFECT_SCROLL_HANDLER
ChromeCompositorSchedulerState.BeginImplFrameDeadlineMode = 0 DEADLINE_MODE_UNSPECIFIED, 1 DEADLINE_MODE_NONE,
    2 DEADLINE_MODE_IMMEDIATE, 3 DEADLINE_MODE_REGULAR, 4 DEADLINE_MODE_LATE, 5 DEADLINE_MODE_BLOCKED
BeginImplFrameArgs.State = 0 BEGIN_FRAME_FINISHED, 1 BEGIN_FRAME_USING
BeginFrameArgs.BeginFrameArgsType = 0 BEGIN_FRAME_ARGS_TYPE_UNSPECIFIED, 1 BEGIN_FRAME_ARGS_TYPE_INVALID,
    2 BEGIN_FRAME_ARGS_TYPE_NORMAL, 3 BEGIN_FRAME_ARGS_TYPE_MISSED
ChromeLegacyIpc.MessageClass = 0 CLASS_UNSPECIFIED, 1 CLASS_AUTOMATION, 2 CLASS_FRAME, 3 CLASS_PAGE, 4 CLASS_VIEW,
    5 CLASS_WIDGET, 6 CLASS_INPUT, 7 CLASS_TEST, 8 CLASS_WORKER, 9 CLASS_NACL, 10 CLASS_GPU_CHANNEL, 11 CLASS_MEDIA,
    12 CLASS_PPAPI, 13 CLASS_CHROME, 14 CLASS_DRAG, 15 CLASS_PRINT, 16 CLASS_EXTENSION, 17 CLASS_TEXT_INPUT_CLIENT,
    18 CLASS_BLINK_TEST, 19 CLASS_ACCESSIBILITY, 20 CLASS_PRERENDER, 21 CLASS_CHROMOTING, 22 CLASS_BROWSER_PLUGIN,
    23 CLASS_ANDROID_WEB_VIEW, 24 CLASS_NACL_HOST, 25 CLASS_ENCRYPTED_MEDIA, 26 CLASS_CAST, 27 CLASS_GIN_JAVA_BRIDGE,
    28 CLASS_CHROME_UTILITY_PRINTING, 29 CLASS_OZONE_GPU, 30 CLASS_WEB_TEST, 31 CLASS_NETWORK_HINTS,
    32 CLASS_EXTENSIONS_GUEST_VIEW, 33 CLASS_GUEST_VIEW, 34 CLASS_MEDIA_PLAYER_DELEGATE, 35 CLASS_EXTENSION_WORKER,
    36 CLASS_SUBRESOURCE_FILTER, 37 CLASS_UNFREEZABLE_FRAME
ChromeLatencyInfo.Step = 0 STEP_UNSPECIFIED, 3 STEP_SEND_INPUT_EVENT_UI, 5 STEP_HANDLE_INPUT_EVENT_IMPL,
    8 STEP_DID_HANDLE_INPUT_AND_OVERSCROLL, 4 STEP_HANDLE_INPUT_EVENT_MAIN, 2 STEP_MAIN_THREAD_SCROLL_UPDATE,
    1 STEP_HANDLE_INPUT_EVENT_MAIN_COMMIT, 9 STEP_HANDLED_INPUT_EVENT_MAIN_OR_IMPL, 10 STEP_HANDLED_INPUT_EVENT_IMPL,
    6 STEP_SWAP_BUFFERS, 7 STEP_DRAW_AND_SWAP, 11 STEP_FINISHED_SWAP_BUFFERS
ChromeLatencyInfo.LatencyComponentType = 0 COMPONENT_UNSPECIFIED, 1 COMPONENT_INPUT_EVENT_LATENCY_BEGIN_RWH,
    2 COMPONENT_INPUT_EVENT_LATENCY_SCROLL_UPDATE_ORIGINAL,
    3 COMPONENT_INPUT_EVENT_LATENCY_FIRST_SCROLL_UPDATE_ORIGINAL, 4 COMPONENT_INPUT_EVENT_LATENCY_ORIGINAL,
    5 COMPONENT_INPUT_EVENT_LATENCY_UI, 6 COMPONENT_INPUT_EVENT_LATENCY_RENDERER_MAIN,
    7 COMPONENT_INPUT_EVENT_LATENCY_RENDERING_SCHEDULED_MAIN, 8 COMPONENT_INPUT_EVENT_LATENCY_RENDERING_SCHEDULED_IMPL,
    9 COMPONENT_INPUT_EVENT_LATENCY_SCROLL_UPDATE_LAST_EVENT, 10 COMPONENT_INPUT_EVENT_LATENCY_ACK_RWH,
    11 COMPONENT_INPUT_EVENT_LATENCY_RENDERER_SWAP, 12 COMPONENT_DISPLAY_COMPOSITOR_RECEIVED_FRAME,
    13 COMPONENT_INPUT_EVENT_GPU_SWAP_BUFFER, 14 COMPONENT_INPUT_EVENT_LATENCY_FRAME_SWAP
ChromeLatencyInfo.InputType = 0 UNSPECIFIED_OR_OTHER, 1 TOUCH_MOVED, 2 GESTURE_SCROLL_BEGIN, 3 GESTURE_SCROLL_UPDATE,
    4 GESTURE_SCROLL_END, 5 GESTURE_TAP, 6 GESTURE_TAP_CANCEL
ChromeFrameReporter.State = 0 STATE_NO_UPDATE_DESIRED, 1 STATE_PRESENTED_ALL, 2 STATE_PRESENTED_PARTIAL, 3 STATE_DROPPED
ChromeFrameReporter.FrameDropReason = 0 REASON_UNSPECIFIED, 1 REASON_DISPLAY_COMPOSITOR, 2 REASON_MAIN_THREAD,
    3 REASON_CLIENT_COMPOSITOR
ChromeFrameReporter.ScrollState = 0 SCROLL_NONE, 1 SCROLL_MAIN_THREAD, 2 SCROLL_COMPOSITOR_THREAD, 3 SCROLL_RASTER,
    4 SCROLL_UNKNOWN
ChromeFrameReporter.FrameType = 0 FORKED, 1 BACKFILL
ChromeApplicationStateInfo.ChromeApplicationState = 0 APPLICATION_STATE_UNKNOWN,
    1 APPLICATION_STATE_HAS_RUNNING_ACTIVITIES, 2 APPLICATION_STATE_HAS_PAUSED_ACTIVITIES,
    3 APPLICATION_STATE_HAS_STOPPED_ACTIVITIES, 4 APPLICATION_STATE_HAS_DESTROYED_ACTIVITIES
ChromeRAILMode = 0 RAIL_MODE_NONE, 1 RAIL_MODE_RESPONSE, 2 RAIL_MODE_ANIMATION, 3 RAIL_MODE_IDLE, 4 RAIL_MODE_LOAD
ChromeMemoryPressureNotification: 1 level MemoryPressureLevel, 2 creation_location_iid uint
ChromeTaskAnnotator: 1 ipc_hash uint, 2 task_delay_us uint, 3 delay_policy ChromeTaskAnnotator.DelayPolicy
ChromeBrowserContext: 2 id string
ChromeProfileDestroyer: 1 profile_ptr fixed64, 2 is_off_the_record bool, 3 otr_profile_id string,
    4 host_count_at_creation uint, 5 host_count_at_destruction uint, 6 render_process_host_ptr fixed64
ChromeTaskPostedToDisabledQueue: 1 task_queue_name string, 2 time_since_disabled_ms uint, 3 ipc_hash uint,
    4 source_location_iid uint
ChromeRasterTask: 1 source_frame_number int
ChromeMessagePumpForUI: 1 message_id uint, 2 wait_for_object_result uint
RenderFrameImplDeletion: 1 intent FrameDeleteIntention, 2 has_pending_commit bool,
    3 has_pending_cross_document_commit bool, 4 frame_tree_node_id uint
ChromeHashedPerformanceMark: 1 site_hash uint, 2 site string, 3 mark_hash uint, 4 mark string,
    5 execution_context_id uint, 6 sequence_number uint
RenderProcessHost: 1 id uint, 2 process_lock string, 3 child_process_id int, 4 browser_context ChromeBrowserContext,
    99 debug_annotations DebugAnnotation*
RenderProcessHostListener: 1 routing_id uint
RenderProcessHostCleanup: 1 listener_count uint, 2 keep_alive_ref_count uint, 3 shutdown_delay_ref_count uint,
    4 worker_ref_count uint, 5 pending_reuse_ref_count uint, 6 navigation_state_keepalive_count uint
ChildProcessLauncherPriority: 1 is_backgrounded bool, 2 has_pending_views bool,
    3 importance ChildProcessLauncherPriority.Importance
ResourceBundle: 1 resource_id uint
ChromeWebAppBadNavigate: 1 is_kiosk bool, 2 has_hosted_app_controller bool, 3 app_name string, 4 system_app_type uint,
    5 web_app_provider_registry_ready bool, 6 system_web_app_manager_synchronized bool
ChromeExtensionId: 1 extension_id string, 2 pseudonymized_extension_id uint
ChromeSqlDiagnostics: 1 reported_sqlite_error_code int, 2 error_code int, 3 last_errno int, 4 sql_statement string,
    5 version int, 6 schema_sql_rows string*, 7 schema_other_row_names string*, 8 has_valid_header bool,
    9 has_valid_schema bool, 10 error_message string
ActiveProcesses: 1 pid int*
ChromeAppState = 1 APP_STATE_FOREGROUND, 2 APP_STATE_BACKGROUND
MemoryPressureLevel = 0 MEMORY_PRESSURE_LEVEL_NONE, 1 MEMORY_PRESSURE_LEVEL_MODERATE, 2 MEMORY_PRESSURE_LEVEL_CRITICAL
ChromeTaskAnnotator.DelayPolicy = 0 FLEXIBLE_NO_SOONER, 1 FLEXIBLE_PREFER_EARLY, 2 PRECISE
FrameDeleteIntention = 0 FRAME_DELETE_INTENTION_NOT_MAIN_FRAME,
    1 FRAME_DELETE_INTENTION_SPECULATIVE_MAIN_FRAME_FOR_SHUTDOWN,
    2 FRAME_DELETE_INTENTION_SPECULATIVE_MAIN_FRAME_FOR_NAVIGATION_CANCELLED
ChildProcessLauncherPriority.Importance = 1 IMPORTANCE_NORMAL, 2 IMPORTANCE_MODERATE, 3 IMPORTANCE_IMPORTANT,
    4 IMPORTANCE_PERCEPTIBLE, 5 IMPORTANCE_NOT_PERCEPTIBLE
ProcessStats.Process: 1 pid int, 11 threads ProcessStats.Thread*, 12 is_peak_rss_resettable bool,
    15 fds ProcessStats.FDInfo*
ProcessStats.Thread: 1 tid int
ProcessStats.FDInfo: 1 fd uint, 2 path string
SmapsPacket: 1 pid uint, 2 entries SmapsEntry*, 3 packed_entries PackedSmaps
SmapsEntry: 1 path string, 2 size_kb uint, 3 private_dirty_kb uint, 4 swap_kb uint, 5 file_name string,
    6 start_address uint, 7 module_timestamp uint, 8 module_debugid string, 9 module_debug_path string,
    10 protection_flags uint, 11 private_clean_resident_kb uint, 12 shared_dirty_resident_kb uint,
    13 shared_clean_resident_kb uint, 14 locked_kb uint, 15 proportional_resident_kb uint
PackedSmaps: 1 string_table string*, 2 name_id uint*, 3 aggregate_count uint*, 4 size_kb uint*, 5 rss_kb uint*,
    6 anonymous_kb uint*, 7 swap_kb uint*, 8 shared_clean_kb uint*, 9 shared_dirty_kb uint*, 10 private_clean_kb uint*,
    11 private_dirty_kb uint*, 12 locked_kb uint*, 13 pss_kb uint*, 14 pss_dirty_kb uint*, 15 swap_pss_kb uint*
MemoryTrackerSnapshot: 1 global_dump_id uint, 2 level_of_detail MemoryTrackerSnapshot.LevelOfDetail
MemoryTrackerSnapshot.LevelOfDetail = 0 DETAIL_FULL, 1 DETAIL_LIGHT, 2 DETAIL_BACKGROUND
MemoryTrackerSnapshot.ProcessSnapshot: 1 pid int, 2 allocator_dumps MemoryNode*, 3 memory_edges MemoryEdge*
MemoryNode: 1 id uint, 2 absolute_name string, 3 weak bool, 4 size_bytes uint, 5 entries MemoryNodeEntry*
MemoryNodeEntry: 1 name string, 2 units MemoryNodeEntry.Units, 3 value_uint64 uint, 4 value_string string
MemoryNodeEntry.Units = 0 UNSPECIFIED, 1 BYTES, 2 COUNT
MemoryEdge: 1 source_id uint, 2 target_id uint, 3 importance uint, 4 overridable bool
"""
